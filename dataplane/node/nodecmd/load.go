package nodecmd

import (
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/shared/strict/flags"
)

// commandLine is Config and the flags that no file or environment has.
type commandLine struct {
	Config

	ConfigFile  kong.ConfigFlag  `name:"config" placeholder:"PATH" help:"YAML file; its keys are the names of these flags."`
	PrintConfig bool             `env:"-" help:"Print the configuration in force, passwords masked, and exit."`
	Version     kong.VersionFlag `env:"-" help:"Print the version and exit."`
}

const about = `A rate limiter as a server: gRPC, gRPC-Web, Connect and JSON on --listen,
plain gRPC and Envoy's protocol on --grpc-listen, health and metrics on
--admin-listen.

Without any configuration it runs on its own, in memory. Every flag is also an
environment variable (WEIR_REGION for --region) and a key of the --config file.

"weir-node check-rules PATH..." checks rules for Envoy's service, and ends.`

// load reads flags, environment and file. done reports that a flag such as --help has printed its output, so
// there is nothing to run.
func (p Program) load(args []string, stdout, stderr io.Writer) (config Config, done bool, err error) {
	line := commandLine{Config: Config{callsPublic: p.CallsPublic}}
	parser, err := kong.New(&line,
		kong.Name(p.Name),
		kong.Description(about),
		kong.DefaultEnvars("WEIR"),
		flags.Strict(),
		kong.Configuration(flags.LoadYAML),
		kong.Vars{"version": p.Name + " " + Build()},
		kong.Writers(stdout, stderr),
	)
	if err != nil {
		return Config{}, false, err
	}
	parsed, done, err := flags.Parse(parser, args)
	if done || err != nil {
		return Config{}, done, err
	}
	if err := flags.CheckEnvironment(parser.Model, "WEIR_", os.Environ()); err != nil {
		return Config{}, false, err
	}
	if err := refusePasswords(parsed); err != nil {
		return Config{}, false, err
	}
	if line.PrintConfig {
		if err := flags.Print(stdout, parser.Model.Flags, "", mask); err != nil {
			return Config{}, false, err
		}
	}
	if err := line.readSecretFiles(); err != nil {
		return Config{}, false, err
	}
	return line.Config, line.PrintConfig, line.check()
}

// refusePasswords refuses passwords on the command line: every user of the machine
// can read it, and shells store it.
func refusePasswords(parsed *kong.Context) error {
	for _, path := range parsed.Path {
		if path.Flag == nil || path.Resolved {
			continue
		}
		name := path.Flag.Name
		if value := path.Flag.Target; value.Kind() == reflect.String && holdsPassword(name, value.String()) {
			return fmt.Errorf("--%s holds a password, and other users can read a command line: use %s or --%s-file", name,
				path.Flag.Envs[0], name)
		}
	}
	return nil
}
