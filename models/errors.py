"""Errors and warnings about a parameter, or about a component's answer: those of the ground floor, which components raise."""

from netsim.core.errors import AboutParameter as AboutParameter
from netsim.core.errors import AnswerError as AnswerError
from netsim.core.errors import ParameterError as ParameterError
from netsim.core.errors import ParameterWarning as ParameterWarning
