package main

import (
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/shared/strict/flags"
)

// parse reads the configuration. done reports whether a flag itself was the whole work, for example --version.
func parse(args []string, stdout, stderr io.Writer,
	version string) (c *config, model *kong.Application, done bool, err error) {
	c = &config{}
	parser, err := kong.New(c,
		kong.Name("weir-control"),
		kong.Description("The control plane of a Weir fleet: deletes expired rows, lists nodes, keeps the schedules on "+
			"Restate, and serves the operators' API (see weirctl). weir-control identity-key --out=FILE makes the key pair for "+
			"--restate-identity-key, and weir-control migrate creates or upgrades the tables and ends."),
		kong.Writers(stdout, stderr),
		kong.DefaultEnvars("WEIR"),
		flags.Strict(),
		kong.Configuration(flags.LoadYAML),
		kong.Vars{"version": version},
	)
	if err != nil {
		return nil, nil, false, err
	}
	if _, done, err := flags.Parse(parser, args); done || err != nil {
		return nil, nil, done, err
	}
	if err := flags.CheckEnvironment(parser.Model, "WEIR_", os.Environ()); err != nil {
		return nil, nil, false, err
	}
	return c, parser.Model, false, nil
}
