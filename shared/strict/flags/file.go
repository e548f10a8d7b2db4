package flags

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/shared/strict"
	"github.com/weirhq/weir/shared/strict/yamlvalue"
)

// fileBytesMax bounds a configuration file.
const fileBytesMax = 1 << 20

// file resolves flags from a YAML document. Values are kept as they are written, and read by the
// flag: a region called on or 007 keeps its name, and 0100 is no number.
type file struct{ values map[string]yaml.Node }

// LoadYAML is a kong.ConfigurationLoader for a YAML document whose keys are the names of flags. Unknown keys,
// keys without a value and keys that occur twice are errors. Flags and the environment win over the file.
func LoadYAML(r io.Reader) (kong.Resolver, error) {
	content, err := io.ReadAll(io.LimitReader(r, fileBytesMax+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the configuration file: %w", err)
	case len(content) > fileBytesMax:
		return nil, fmt.Errorf("the configuration file is longer than %d bytes", fileBytesMax)
	}
	f := file{values: make(map[string]yaml.Node)}
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	if err := decoder.Decode(&f.values); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the configuration file is not YAML of the form name: value: %w", err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the configuration file has several documents, want one")
	}
	return f, nil
}

// InFile reports whether a configuration file may set a flag: for example, a file cannot set --help.
func InFile(flag *kong.Flag) bool {
	return !slices.Contains([]string{"help", "version", "config", "print-config"}, flag.Name)
}

// Validate implements kong.Resolver. It rejects keys that are no flag's name.
func (f file) Validate(app *kong.Application) error {
	var known []string
	for _, flag := range app.Flags {
		if InFile(flag) {
			known = append(known, flag.Name)
		}
	}
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(known, key) {
			unknown = append(unknown, strict.Quote(key))
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("the configuration file has unknown keys: %s (known: %s)", strings.Join(unknown, ", "),
			strings.Join(known, ", "))
	}
	return nil
}

// Resolve implements kong.Resolver. Kong checks that a flag is not on the command line; whether it
// is in the environment is left to Resolve.
func (f file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	node, ok := f.values[flag.Name]
	if !ok || !InFile(flag) {
		return nil, nil
	}
	written, err := written(flag, &node)
	if err != nil {
		return nil, fmt.Errorf("the configuration file: %w", err)
	}
	return written, nil
}

// written returns a value as it would stand on the command line.
func written(flag *kong.Flag, node *yaml.Node) (string, error) {
	switch {
	case node.Kind == yaml.SequenceNode && flag.IsSlice():
		items := make([]string, len(node.Content))
		for i, item := range node.Content {
			text, err := yamlvalue.Text(flag.Name, item)
			if err != nil {
				return "", err
			}
			items[i] = text
		}
		return kong.JoinEscaped(items, flag.Tag.Sep), nil
	case node.Kind == yaml.MappingNode && flag.IsMap():
		var pairs []string
		for i := 0; i < len(node.Content); i += 2 {
			key, err := yamlvalue.Text(flag.Name, node.Content[i])
			if err != nil {
				return "", err
			}
			if strings.Contains(key, "=") {
				return "", fmt.Errorf("%s has the key %s, which must not contain '='", flag.Name, strict.Quote(key))
			}
			text, err := yamlvalue.Text(flag.Name+" of "+strict.Quote(key), node.Content[i+1])
			if err != nil {
				return "", err
			}
			pairs = append(pairs, key+"="+text)
		}
		return kong.JoinEscaped(pairs, flag.Tag.MapSep), nil
	}
	return yamlvalue.Text(flag.Name, node)
}

// checkKeys refuses pairs of key=value in which a key occurs twice.
func checkKeys(pairs []string) error {
	seen := make(map[string]bool)
	for _, pair := range pairs {
		key, _, _ := strings.Cut(pair, "=")
		if seen[key] {
			return fmt.Errorf("the key %s occurs twice", strict.Quote(key))
		}
		seen[key] = true
	}
	return nil
}
