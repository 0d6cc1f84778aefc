"""Geneva's own client: the scenarios of `make interop`, with a credential."""

import io
import json
import os
import re
import runpy
import sys
import tempfile
import warnings
from contextlib import redirect_stdout

from trying import CREDENTIAL, URL

warnings.filterwarnings("ignore")
sys.path.insert(0, os.getcwd())
# Where its recorder would read which scenario is running.
os.environ["TIDEMILL_SCENARIO_FILE"] = tempfile.mkstemp(prefix="tidemill-scenario-")[1]

import geneva  # noqa: E402

MODULES = ("scenarios", "query_view_scenarios", "function_view_scenarios")
RESULT = re.compile(r"(passed|FAILED)  (.*?)(?: \([\d.]+ s\))?$")
connect = geneva.connect
geneva.connect = lambda *given, **options: connect(*given, **{**options, "api_key": CREDENTIAL})


class Lines(io.StringIO):
    """Turns the report of a scenario into a line of JSON; what follows a failure is its detail."""

    failed = None
    said = ""

    def write(self, text):
        for line in text.splitlines():
            found = RESULT.match(line)
            if found is None:
                self.said = line.strip() or self.said
                continue
            self.tell()
            if found[1] == "passed":
                print(json.dumps({"operation": found[2], "outcome": "pass"}), file=sys.__stdout__, flush=True)
            else:
                self.failed, self.said = found[2], ""
        return len(text)

    def tell(self):
        if self.failed is not None:
            told = {"operation": self.failed, "outcome": "fail", "detail": self.said}
            print(json.dumps(told), file=sys.__stdout__, flush=True)
            self.failed = None


for module in MODULES:
    sys.argv = [module, URL]
    with redirect_stdout(Lines()) as lines:
        try:
            # As the main program: functions of other modules would be pickled by name.
            runpy.run_module(f"tests.interop.geneva.{module}", run_name="__main__", alter_sys=True)
        except SystemExit:
            lines.tell()
