package nodecmd

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// yamlFile resolves flags from one YAML document: a flat mapping of flags' names to
// scalars. Scalars are taken as written and read by the flag, so that a region
// called `on` or `007` keeps its name.
type yamlFile struct{ values map[string]string }

// loadYAML is a kong.ConfigurationLoader.
func loadYAML(r io.Reader) (kong.Resolver, error) {
	decoder := yaml.NewDecoder(r)
	var document map[string]yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the configuration file: %w", err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("read the configuration file: want one document")
	}
	file := yamlFile{values: make(map[string]string, len(document))}
	for key, node := range document {
		if node.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("read the configuration file: line %d: %s is not a plain value", node.Line, key)
		}
		if node.Tag != "!!null" {
			file.values[key] = node.Value
		}
	}
	return file, nil
}

// Validate refuses keys that are the name of no flag.
func (f yamlFile) Validate(app *kong.Application) error {
	known := make(map[string]bool)
	for _, flag := range app.Flags {
		known[flag.Name] = fromFile(flag)
	}
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if !known[key] {
			return fmt.Errorf("read the configuration file: unknown key %q", key)
		}
	}
	return nil
}

// Resolve returns the value of a flag that is neither on the command line, which kong
// checks, nor in the environment, which it leaves to Resolve.
func (f yamlFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	if value, ok := f.values[flag.Name]; ok && fromFile(flag) {
		return value, nil
	}
	return nil, nil
}

// fromFile reports whether the file may set a flag: not --help and the like.
func fromFile(flag *kong.Flag) bool {
	return !slices.Contains([]string{"help", "version", "config", "print-config"}, flag.Name)
}
