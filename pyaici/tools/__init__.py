"""Tools of the operator, as calls that controllers may make: servers of the Model Context Protocol, and HTTP.

The process `python -m pyaici.tools` answers these calls, outside of the sandbox. Its connection to aicirt may
do nothing else. `pyaici.tools.process` starts and watches it.
"""
