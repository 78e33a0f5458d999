"""Runs the package `tests` in a folder, and writes down how each test went.

    runner.py FOLDER REPORT LEFT_OUT OPTION...

LEFT_OUT names modules, parted by commas, whose tests do not run; OPTIONs are those of the package.
REPORT gets a line of JSON when a test starts and one when it has ended, so that it tells which one
hangs. unittest's own output is for people: warnings stand in the middle of its lines.
"""

import json
import sys
import unittest


class Result(unittest.TextTestResult):
    """Writes what unittest says to the report, too."""

    report = None

    def note(self, test, how, why=""):
        line = {"test": test.id(), "how": how, "why": str(why)}
        print(json.dumps(line), file=self.report, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.note(test, "started")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed", repr(err[1]))

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "failed", repr(err[1]))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(subtest, "failed", repr(err[1]))

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, "passed")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "failed", "passed where it should not")


def main():
    folder, report, left_out = sys.argv[1:4]
    left_out = left_out.split(",")
    # The package finds its parser as a module of its own.
    sys.path[0:1] = [folder, folder + "/tests"]
    sys.argv[1:] = sys.argv[4:]
    from args_parser import parser

    parser.parse_args()
    import tests

    suite = unittest.TestSuite()
    for module in tests.__test_modules__:
        if module.__name__.split(".")[-1] not in left_out:
            suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    with open(report, "w", encoding="utf-8") as Result.report:
        runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
        ended = runner.run(suite).wasSuccessful()
    sys.exit(0 if ended else 1)


main()
