"""What a user may get wrong in a scenario, and the beginning of the one message that tells of it."""

from __future__ import annotations

UNKNOWN_KEYS = {
    "rund=3": "rund = 3: unknown key; did you mean 'rounds'?",
    "server.per_roud=3": "server.per_roud = 3: unknown key; did you mean 'per_round'?",
    "clients.groups.0.shar=1": "clients.groups.0.shar = 1: unknown key; did you mean 'share'?",
    "uplink.dely=3": "uplink.dely = 3: unknown key; did you mean 'delay'?",
    "uplink.delay.mean=3": "uplink.delay.mean = 3: unknown key; did you mean 'mean_s'?",
    "uplink.delay.mean_s={by_grop={}}": "uplink.delay.mean_s.by_grop = {}: unknown key; did you mean 'by_group'?",
    "uplink.delay.mean_s.by_group.fast.form=1": "uplink.delay.mean_s.by_group.fast.form = 1: unknown key; did you mean 'from'?",
    "uplink.changes.0.at_ruond=4": "uplink.changes.0.at_ruond = 4: unknown key; did you mean 'at_round'?",
    "uplink.changes.0.delay.men_s=1": "uplink.changes.0.delay: the law has no parameter 'men_s'; did you mean 'mean_s'?",
    "policy.alpa=1": "policy.alpa = 1: unknown key; did you mean 'alpha'?",
    "privacy.schedule.et=1": "privacy.schedule.et = 1: unknown key; did you mean 'eta'?",
    "metrics.reward.alpa=1": "metrics.reward.alpa = 1: unknown key; did you mean 'alpha'?",
    "sweep.variants.1.nam=1": "sweep.variants.1.nam = 1: unknown key; did you mean 'name'?",
    "availability={kind='markov',mean_on=3}": "availability.mean_on = 3: unknown key; did you mean 'mean_on_s'?",
    "uplink.delay={kind='by-group',groups={fast={kind='constant',valu_s=1},slow={kind='constant',value_s=1}}}": (
        "uplink.delay.groups.fast.valu_s = 1: unknown key; did you mean 'value_s'?"
    ),
    "learner={network={kind='mlp',hiden=[3]},optimizer={kind='adam',learning_rate=0.1}}": (
        "learner.network.hiden = [3]: unknown key; did you mean 'hidden'?"
    ),
}

WRONG_TYPES = {
    "rounds=many": 'rounds = "many": must be a whole number',
    "rounds=true": "rounds = true: must be a whole number",
    "rounds=6.0": "rounds = 6.0: must be a whole number",
    "name=3": "name = 3: must be a string",
    "server.reselect_busy=1": "server.reselect_busy = 1: must be true or false",
    "policy.alpha=x": 'policy.alpha = "x": must be a number',
    "policy.alpha=true": "policy.alpha = true: must be a number",
    "policy.alpha=[1.0]": "policy.alpha = [1.0]: must be a number; give one: this key has no values by client or group",
    "uplink.resend_after_s={by_group={fast=1.0}}": "must be a number; give one: this key has no values by client or group",
    "policy=random": 'policy = "random": must be a table with a key kind, one of: pause,',
    "policy={alpha=1}": "must be a table with a key kind",
    "policy.kind=3": "must be a table with a key kind",
    "uplink=3": "uplink = 3: must be a table",
    "uplink.changes=3": "uplink.changes = 3: must be a list",
    "uplink.changes=[3]": "uplink.changes.0 = 3: must be a table",
    "uplink.delay.std_s=true": "uplink.delay.std_s = true: must be a finite number, { from = .., to = .. }",
    "uplink.delay.std_s=x": 'uplink.delay.std_s = "x": must be a finite number',
    "uplink.delay.mean_s=[]": "uplink.delay.mean_s = []: must be a finite number",
    "uplink.delay.mean_s={}": "uplink.delay.mean_s = {}: must be a finite number",
    "uplink.delay.mean_s=[1,2,true,4,5,6]": "must be a finite number",
    "uplink.delay.mean_s={by_group={fast=1,slow=[1,2]}}": "uplink.delay.mean_s.by_group.slow = [1, 2]: must be a finite",
    "uplink.delay.mean_s={by_group=3}": "uplink.delay.mean_s.by_group = 3: must be a table",
    "uplink.delay={kind='empirical',values_s=['a']}": 'uplink.delay.values_s.0 = "a": must be a number',
    "uplink.changes.0.clients=[1.5]": "uplink.changes.0.clients = [1.5]: must be a group's name, or a list of client numbers",
    "uplink.changes.0.delay={mean_s='x'}": "uplink.changes.0.delay.mean_s = 'x': must be a finite number",
    "privacy.schedule={kind='explicit',epsilons=3}": "privacy.schedule.epsilons = 3: must be a list",
    "learner={network={kind='mlp',hidden=3},optimizer={kind='sgd',learning_rate=0.1}}": (
        "learner.network.hidden = 3: must be a list"
    ),
}

WRONG_VALUES = {
    "rounds=0": "rounds = 0: must be >= 1",
    "rounds=99999999999999999999999": "rounds = 99999999999999999999999: must be <= 1e+12",
    "seed=-1": "seed = -1: must be >= 0",
    "seed=9999999999999999999999": "seed = 9999999999999999999999: must be <= 9.2",
    "name='..'": 'name = "..": must match the pattern',
    "name='a/b'": 'name = "a/b": must match the pattern',
    "time_limit_s=0": "time_limit_s = 0: must be > 0",
    "time_limit_s=inf": "time_limit_s = Infinity: must be a finite number",
    "clients.count=1": "server.per_round = 2: must be at most the 1 clients of clients.count",
    "clients.count=60000000000": "clients.count = 60000000000: must be <= 1e+07",
    "clients.data_sizes=0": "clients.data_sizes = 0.0 for client 0: every client must hold more than 0 samples",
    "clients.data_sizes=[1,2]": "clients.data_sizes: has 2 numbers for 6 clients; give one for each",
    "server.per_round=7": "server.per_round = 7: must be at most the 6 clients of clients.count",
    "server.first=3": "server.first = 3: must be at most the 2 clients of server.per_round",
    "server.deadline_s=-1": "server.deadline_s = -1: must be > 0",
    "server.deadline_s=nan": "server.deadline_s = NaN: must be a finite number",
    "server.when_short=never": "server.when_short = \"never\": must be 'wait' or 'proceed'",
    "server.payload_bytes=100": "server.payload_bytes = 100: is no key any more; set payload.down_bytes and payload.up_bytes",
    "payload.down_bytes=-1": "payload.down_bytes = -1.0: must be >= 0 bytes",
    "payload.header_bytes=-1": "payload.header_bytes = -1: must be >= 0",
    "payload.header_bytes=99999999999999999999999": "payload.header_bytes = 99999999999999999999999: must be <= 1e+12",
    "payload.up_bites=1": "payload.up_bites = 1: unknown key; did you mean 'up_bytes'?",
    "uplink.bandwidth_bytes_per_s=10.0": "uplink.bandwidth_bytes_per_s: a message of 0 bytes takes no",
    "uplink.sub_channels=0": "uplink.sub_channels = 0: must be >= 1",
    "uplink.bandwidth_bytes_per_s=0": "uplink.bandwidth_bytes_per_s = 0.0: must be finite and > 0 bytes per second",
    "uplink.bandwidth_bytes_per_s=1e-320": "uplink.bandwidth_bytes_per_s = 1e-320: must be finite and >= 1e-12 bytes per second",
    "uplink.delay.std_s=-1": "uplink.delay.std_s = -1.0: must be finite and >= 0 seconds",
    "uplink.delay.std_s=nan": "uplink.delay.std_s = NaN: must be a finite number",
    "uplink.delay.std_s=1e400": "uplink.delay.std_s = Infinity: must be a finite number",
    "uplink.delay.mean_s=1e308": "uplink.delay: takes 1e+308 s on average for client 0; must be at most 1e+12 s",
    "uplink.delay.floor=cut": "uplink.delay.floor = \"cut\": must be 'clip' or 'resample'",
    "uplink.delay.mean_s=[1,2]": "uplink.delay.mean_s: has 2 numbers for 6 clients; give one for each",
    "uplink.delay.mean_s={from=1,to=-2}": "uplink.delay.mean_s = -0.5 for client 2: must be finite and >= 0 seconds",
    "uplink.delay.mean_s={from=1,to=inf}": "uplink.delay.mean_s.to = Infinity: must be a finite number",
    "uplink.delay.mean_s={from=1}": "uplink.delay.mean_s.to is missing; add it",
    "uplink.delay={kind='empirical',path='nowhere.csv'}": "uplink.delay.path = 'nowhere.csv': cannot be read",
    "uplink.channel.success=1.5": "uplink.channel.success = 1.5: must be finite and in [0, 1]",
    "uplink.channel.success=-0.5": "uplink.channel.success = -0.5: must be finite and in [0, 1]",
    "availability={kind='markov',mean_on_s=0,mean_off_s=1}": (
        "availability.mean_on_s = 0.0: must be finite and in [1e-06, 1e+300] seconds"
    ),
    "availability={kind='trace',path='nowhere.csv'}": "availability.path = 'nowhere.csv': cannot be read",
    "availability={kind='trace',path='nowhere.csv',repeat_s=0}": "availability.repeat_s = 0.0: must be > 0 and <= 1e+100 seconds",
    "availability={kind='toggles',path='nowhere.json'}": "availability.path = 'nowhere.json': cannot be read as a text file",
    "availability={kind='fedscale',path='nowhere.json'}": "availability.path = 'nowhere.json': cannot be read as a text file",
    "availability={kind='diurnal',by_hour=[0.5],mean_session_s=60}": "availability.by_hour has 1 entries: must hold 24 numbers",
    "policy.alpha=-1": "policy.alpha = -1.0: must be finite and >= 0",
    "privacy.sensitivity=0": "privacy.sensitivity = 0: must be > 0",
    "privacy.schedule.eta=0": "privacy.schedule.eta = 0.0: must be > 0 and <= 700",
    "privacy.schedule={kind='explicit',epsilons=[]}": "privacy.schedule.epsilons = []: must hold at least one budget",
    "metrics.reward.tau_min_s=0": "metrics.reward.tau_min_s = 0.0: must be finite and > 0",
    "sweep.target_accuracy=80": "sweep.target_accuracy = 80: must be <= 1",
}

UNKNOWN_NAMES = {
    "policy.kind=pose": "unknown policy 'pose'; did you mean 'pause'? Or name a class as 'package.module:Class'",
    "uplink.delay={kind='gausian'}": "unknown delay 'gausian'; did you mean 'gaussian'?",
    "uplink.channel={kind='by-group',groups={}}": "unknown channel 'by-group'; known: bernoulli,",
    "learner={network={kind='mlpp'},optimizer={kind='adam',learning_rate=0.1}}": "unknown network 'mlpp'; did you mean 'mlp'?",
    "learner={network={kind='linear'},optimizer={kind='adm',learning_rate=0.1}}": "unknown optimizer 'adm'; did you mean 'adam'?",
    "learner={network={kind='svm'},optimizer={kind='sgd',learning_rate=1},partition={kind='a:B'}}": "'a:B' cannot be imported",
}

GROUPS = {
    "clients.groups.0.share=0.7": "clients.groups: hold 7.2 clients, clients.count is 6; make counts and shares add up",
    "clients.groups.0.share=0.3": "clients.groups: hold 4.8 clients, clients.count is 6; make counts and shares add up",
    "clients.groups.0.share=0.01": "clients.groups.0.share = 0.01: is no client of 6",
    "clients.groups.1={name='slow',count=2}": "clients.groups: hold 5 clients",
    "clients.groups.1={name='fast',share=0.5}": "clients.groups.1.name = 'fast': is used twice; give every group its own name",
    "clients.groups.0={name='fast'}": "give either share or count",
    "clients.groups.0={name='fast',share=0.5,count=3}": "give either share or count",
    "clients.groups.0.name='1st'": 'clients.groups.0.name = "1st": must match the pattern',
    "uplink.delay.mean_s={by_group={fast=1}}": "uplink.delay.mean_s.by_group: gives no value for slow; name every group",
    "uplink.delay.mean_s={by_group={fast=1,slo=2}}": "uplink.delay.mean_s.by_group = 'slo': unknown group; did you mean 'slow'?",
    "uplink.delay={kind='by-group',groups={fast={kind='constant',value_s=1}}}": (
        "uplink.delay.groups: gives no law for slow; name every group"
    ),
    "uplink.delay={kind='by-group',groups={fast={kind='constant',value_s=-1},slow={kind='constant',value_s=1}}}": (
        "uplink.delay.groups.fast.value_s = -1.0: must be finite and >= 0 seconds"
    ),
    "uplink.delay={kind='by-group',groups={fast={kind='constant',value_s=1},slow={kind='by-group',groups={}}}}": (
        "uplink.delay.groups.slow.kind = \"by-group\": unknown delay 'by-group'"
    ),
}

CHANGES = {
    "uplink.changes=[{at_round=5,delay={mean_s=1}},{at_round=3,delay={mean_s=2}}]": (
        "uplink.changes.1: comes before the change above it; write changes in order of time"
    ),
    "uplink.changes.0.at_round=1": "uplink.changes.0.at_round = 1: must be >= 2",
    "uplink.changes.0.at_s=3": "give either at_round or at_s",
    "uplink.changes=[{delay={mean_s=1}}]": "give either at_round or at_s",
    "uplink.changes=[{at_round=3}]": "changes nothing: give delay, channel, bandwidth_bytes_per_s or bandwidth",
    "uplink.changes=[{at_round=3,bandwidth={scale=2}}]": (
        'uplink.changes.0.bandwidth = {"scale": 2}: there is no law of bandwidth; give bandwidth, or change bandwidth_bytes_per_s'
    ),
    "compute.changes=[{at_round=3,bandwidth={scale=2}}]": "compute.changes.0: local training has neither channel nor bandwidth",
    "uplink.bandwidth={kind='packet-trace'}": "uplink.bandwidth.path is missing",
    "uplink.bandwidth={kind='trace',path='nowhere.csv'}": "uplink.bandwidth.path = 'nowhere.csv': cannot be read as a text file",
    "uplink.bandwidth={kind='constant',bytes_per_s=0}": "uplink.bandwidth.bytes_per_s = 0.0: must be finite and > 0",
    "uplink={bandwidth={kind='constant',bytes_per_s=1},bandwidth_bytes_per_s=3}": (
        "uplink.bandwidth_bytes_per_s = 3.0: leave it out where bandwidth is given"
    ),
    "uplink={bandwidth={kind='constant',bytes_per_s=1},changes=[{at_s=3,bandwidth_bytes_per_s=3}]}": (
        "uplink.changes.0.bandwidth_bytes_per_s = 3.0: leave it out where the link has a bandwidth"
    ),
    "uplink={bandwidth={kind='constant',bytes_per_s=1},changes=[{at_s=3,bandwidth={bytes_per_s=0}}]}": (
        "uplink.changes.0.bandwidth.bytes_per_s = 0.0: must be finite and > 0"
    ),
    "uplink={bandwidth={kind='constant',bytes_per_s=1},random_changes={count=1,parameter='bandwidth.rate'}}": (
        "uplink.random_changes.parameter = 'bandwidth.rate': the law has no parameter 'rate'"
    ),
    "uplink.shared={bandwidth={kind='by-group',groups={}}}": 'uplink.shared.bandwidth.kind = "by-group"',
    "uplink.shared={bandwidth={kind='constant',bytes_per_s=1},bandwidth_bytes_per_s=3}": (
        "uplink.shared.bandwidth_bytes_per_s = 3.0: leave it out where bandwidth is given"
    ),
    "downlink.shared={}": "downlink.shared.bandwidth_bytes_per_s is missing",
    "uplink.changes.0.clients=fats": "uplink.changes.0.clients = 'fats': unknown group; did you mean 'fast'?",
    "uplink.changes.0.clients=[6]": "uplink.changes.0.clients = [6]: must name some clients between 0 and 5, each once",
    "uplink.changes.0.clients=[]": "must name some clients between 0 and 5, each once",
    "uplink.changes.0.clients=[1,1]": "must name some clients between 0 and 5, each once",
    "uplink.changes.0.delay.mean_s=-1": "uplink.changes.0.delay.mean_s = -1.0 for client 0: must be finite and >= 0 seconds",
    "uplink.changes.0.channel={success=2}": "uplink.changes.0.channel.success = 2.0 for client 0: must be finite and in [0, 1]",
    "uplink.changes.0.channel={loss=2}": "uplink.changes.0.channel: the law has no parameter 'loss'; known: success",
    "uplink.changes.0.delay={floor='clip'}": "uplink.changes.0.delay.floor: is the same for all clients of a law",
    "uplink.changes=[{at_round=3,delay={floor='cut'}}]": "uplink.changes.0.delay.floor = 'cut'",
    "uplink.changes.0.bandwidth_bytes_per_s=5": "there was none before; set uplink.bandwidth_bytes_per_s",
    "downlink.changes=[{at_round=3,channel={success=0.5}}]": "the law has no parameter 'success'; there are none",
    "compute.changes=[{at_round=3,channel={success=1}}]": "compute.changes.0: local training has neither channel nor bandwidth",
    "compute.changes=[{at_round=3,delay={value_s=1}},{at_s=3,delay={value_s=1}}]": (
        "compute: changes of delay are in rounds and in seconds; use one unit for one law"
    ),
    "uplink.random_changes={count=1,parameter='mean_s'}": (
        "uplink.random_changes.parameter = 'mean_s': must be delay.NAME or channel.NAME"
    ),
    "uplink.random_changes={count=1,parameter='delay.men_s'}": "the law has no parameter 'men_s'; did you mean 'mean_s'?",
    "uplink.random_changes={count=1,parameter='delay.floor'}": "parameter 'floor' cannot be multiplied",
    "uplink.random_changes={count=6,parameter='delay.mean_s'}": "uplink.random_changes.count = 6: 6 segments",
    "uplink.random_changes={count=2,min_spacing=4,parameter='delay.mean_s'}": "do not fit into 6 rounds; ask for fewer",
    "uplink.random_changes={count=9999999999,parameter='delay.mean_s'}": "uplink.random_changes.count = 9999999999: must be <= 1",
    "uplink.random_changes={count=1,factor_low=3,parameter='delay.mean_s'}": (
        "uplink.random_changes.factor_high = 2.0: must be at least factor_low = 3.0"
    ),
    "uplink.random_changes={count=1,unit='seconds',parameter='delay.mean_s'}": (
        "uplink.random_changes.horizon is missing; give it in seconds, or set time_limit_s"
    ),
    "uplink.random_changes={count=1,parameter='channel.success'}": (
        "uplink.random_changes.factor_high = 2.0: takes channel.success out of what is allowed"
    ),
    "compute.random_changes={count=1,parameter='channel.success'}": "compute.random_changes.parameter = 'channel.success': must",
}

CASES = {**UNKNOWN_KEYS, **WRONG_TYPES, **WRONG_VALUES, **UNKNOWN_NAMES, **GROUPS, **CHANGES}
