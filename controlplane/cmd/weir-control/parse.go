package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/shared/strict/flags"
)

// exited is the panic into which kong's exit (--help, --version) is turned.
type exited int

// onExit calls did if kong has exited. Defer it.
func onExit(did func(status int)) {
	switch p := recover().(type) {
	case nil:
	case exited:
		did(int(p))
	default:
		panic(p)
	}
}

// parse reads the configuration. done reports whether a flag itself was the whole work, for example --version.
func parse(args []string, stdout, stderr io.Writer,
	version string) (c *config, model *kong.Application, done bool, err error) {
	defer onExit(func(status int) {
		done = true
		if status != 0 {
			err = fmt.Errorf("exit %d", status)
		}
	})
	c = &config{}
	parser, err := kong.New(c,
		kong.Name("weir-control"),
		kong.Description("The control plane of a Weir fleet: deletes expired rows, lists nodes, keeps the schedules on "+
			"Restate, and serves the operators' API (see weirctl). weir-control identity-key --out=FILE makes the key pair for "+
			"--restate-identity-key, and weir-control migrate creates or upgrades the tables and ends."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.DefaultEnvars("WEIR"),
		flags.Strict(),
		kong.Configuration(flags.LoadYAML),
		kong.Vars{"version": version},
	)
	if err != nil {
		return nil, nil, false, err
	}
	if _, err := parser.Parse(args); err != nil {
		return nil, nil, false, err
	}
	if err := flags.CheckEnvironment(parser.Model, "WEIR_", os.Environ()); err != nil {
		return nil, nil, false, err
	}
	return c, parser.Model, false, nil
}

// printConfig writes every setting in force, in the form of a file for --config.
func printConfig(w io.Writer, model *kong.Application, maskedDSN string) error {
	file := &yaml.Node{Kind: yaml.MappingNode, HeadComment: "WEIR_MYSQL_DSN: " + maskedDSN}
	for _, f := range model.Flags {
		if !flags.InFile(f) {
			continue
		}
		var key, value yaml.Node
		key.SetString(f.Name)
		v := f.Target.Interface()
		if d, ok := v.(time.Duration); ok {
			v = d.String()
		}
		if err := value.Encode(v); err != nil {
			return err
		}
		file.Content = append(file.Content, &key, &value)
	}
	b, err := yaml.Marshal(file)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
