package manual

import "slices"

// ours lists the programs whose commands are compared with the repository, in blocks and in sentences.
var ours = []string{"weir-node", "weir-control", "weirctl", "weir-sim", "make", "go"}

// Elsewhere has the other projects' programs that pages call, with the reason why no test runs them.
var Elsewhere = map[string]string{
	"curl":      "the answers that pages show are held against the server by the tests of its package",
	"grep":      "it reads another command's output",
	"redis-cli": "it asks a Redis that is in trouble",
	"chronyc":   "it asks the clock of a machine",
	"ssh":       "it needs another machine",
	"git":       "it reads the history of a clone",

	"openssl": "it makes secrets for a real installation; the programs' own tests show that they accept such secrets",
	"cd":      "it goes somewhere",
	"source":  "it needs a terminal; weirctl's own tests cover its input",
	"cp":      "it copies the data of a real installation",
	"npm":     "it installs from a registry; deploy/install tests a script that does the same",
	"sed":     "it changes the rules for another place to keep runbooks",
	"install": "it needs root; deploy/check reads the units and files that it installs",

	"systemctl":    "it needs systemd; deploy/check reads the units",
	"docker":       "it needs an engine; deploy/check reads the files",
	"kubectl":      "it needs a cluster; deploy/check reads the manifests",
	"helm":         "it needs a cluster; deploy/check renders the chart",
	"promtool":     "deploy/check runs it",
	"sh":           "its script is looked up; deploy/install tests deps.sh, deploy/check the secrets",
	"q":            "a function of the page it stands on",
	"$RESTATE_BIN": "shared/servers starts the same binary",
	".ci/run":      "continuous integration runs it",

	"bin/weir-gubernator": "the tests of its module start it, with files of settings",
}

// Known reports whether a line that begins with this word is a command.
func Known(program string) bool {
	_, elsewhere := Elsewhere[program]
	return elsewhere || slices.Contains(ours, program)
}

// Ours reports whether a program's commands are compared with the repository.
func Ours(program string) bool { return slices.Contains(ours, program) }
