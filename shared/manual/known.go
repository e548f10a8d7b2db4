package manual

import "slices"

// ours are the programs whose commands are held against what is in the repository, in
// blocks and in sentences.
var ours = []string{"weir-node", "weir-control", "weirctl", "weir-sim", "make", "go"}

// Elsewhere are the programs of others that pages call, and why no test runs them.
var Elsewhere = map[string]string{
	"curl":      "the answers that pages show are held against the server by the tests of its package",
	"grep":      "it reads what another command wrote",
	"redis-cli": "it asks a Redis that is in trouble",
	"chronyc":   "it asks the clock of a machine",
	"ssh":       "it needs another machine",
	"git":       "it reads the history of a clone",

	"openssl": "it makes secrets for a real installation; whether the programs take such ones their own tests tell",
	"cd":      "it goes somewhere",
	"source":  "it needs a terminal; weirctl's own tests read what it would read",
	"cp":      "it copies the data of a real installation",
	"npm":     "it installs from a registry; deploy/install tests what does the same",
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
	".ci/run":      "it is what continuous integration runs",

	"bin/weir-gubernator": "the tests of its module start it, with files of settings",
}

// Known tells whether a line that begins so is a command.
func Known(program string) bool {
	_, elsewhere := Elsewhere[program]
	return elsewhere || slices.Contains(ours, program)
}

// Ours tells whether a program's commands are held against what is in the repository.
func Ours(program string) bool { return slices.Contains(ours, program) }
