"""The figures and tables of three papers, each by a name: what to run, the paper's numbers, and rules fixed beforehand."""
