package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// notSettings are flags that do not describe the process.
var notSettings = []string{"help", "version", "config", "print-config"}

// exited is what kong's own way out (--help, --version) is turned into.
type exited int

// parse reads the configuration. done is true when a flag was itself the work.
func parse(args []string, stdout, stderr io.Writer,
	version string) (c *config, model *kong.Application, done bool, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case exited:
			done = true
			if p != 0 {
				err = fmt.Errorf("exit %d", p)
			}
		default:
			panic(p)
		}
	}()
	c = &config{}
	parser, err := kong.New(c,
		kong.Name("weir-control"),
		kong.Description("The control plane of a Weir fleet: deletes expired rows, lists nodes, keeps the schedules on "+
			"Restate, and serves the operators' API (see weirctl). weir-control identity-key --out=FILE makes the key pair for "+
			"--restate-identity-key, and weir-control migrate creates or upgrades the tables and ends."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.DefaultEnvars("WEIR"),
		kong.Configuration(yamlFile),
		kong.Vars{"version": version},
	)
	if err != nil {
		return nil, nil, false, err
	}
	if _, err := parser.Parse(args); err != nil {
		return nil, nil, false, err
	}
	return c, parser.Model, false, nil
}

// settings is a YAML file as kong asks for it.
type settings map[string]any

// yamlFile reads one mapping of flags' names.
func yamlFile(r io.Reader) (kong.Resolver, error) {
	s := settings{}
	if err := yaml.NewDecoder(r).Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the configuration file is not YAML of the form name: value: %w", err)
	}
	return s, nil
}

// Validate refuses keys that are not settings.
func (s settings) Validate(app *kong.Application) error {
	var known []string
	for _, f := range app.Flags {
		if !slices.Contains(notSettings, f.Name) {
			known = append(known, f.Name)
		}
	}
	var unknown []string
	for key := range s {
		if !slices.Contains(known, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("the configuration file has unknown keys: %s (known: %s)", strings.Join(unknown, ", "),
			strings.Join(known, ", "))
	}
	return nil
}

// Resolve answers for flags that neither the command line nor the environment has.
func (s settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	switch value := s[flag.Name].(type) {
	case nil:
		return nil, nil
	case []any:
		words := make([]string, len(value))
		for i, v := range value {
			words[i] = fmt.Sprint(v)
		}
		return strings.Join(words, ","), nil
	case settings: // what YAML makes of a mapping within one
		if !flag.IsMap() {
			return nil, fmt.Errorf("a mapping is not a value")
		}
		words := make([]string, 0, len(value))
		for k, v := range value {
			words = append(words, fmt.Sprintf("%s=%v", k, v))
		}
		slices.Sort(words)
		return strings.Join(words, ";"), nil
	default:
		return fmt.Sprint(value), nil
	}
}

// printConfig writes every setting in force, as a file that --config takes.
func printConfig(w io.Writer, model *kong.Application, maskedDSN string) error {
	file := &yaml.Node{Kind: yaml.MappingNode, HeadComment: "WEIR_MYSQL_DSN: " + maskedDSN}
	for _, f := range model.Flags {
		if slices.Contains(notSettings, f.Name) {
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
