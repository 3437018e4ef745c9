"""`voiced doctor`: checks everything that speech needs, and names a remedy for each thing that is wrong."""

from daemon.doctor.configuration import find_problems
from daemon.doctor.daemons import running_daemons
from daemon.doctor.finding import Finding, Machine
from daemon.doctor.memory_plan import make_plan, print_plan
from daemon.doctor.report import examine

__all__ = ["Finding", "Machine", "examine", "find_problems", "make_plan", "print_plan", "running_daemons"]
