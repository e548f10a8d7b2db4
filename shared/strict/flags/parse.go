package flags

import (
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// Parse reads args. done reports whether a flag was the whole work: --help or --version, which have printed.
func Parse(parser *kong.Kong, args []string) (parsed *kong.Context, done bool, err error) {
	parser.Exit = func(int) { done = true }
	if parsed, err = parser.Parse(args); done {
		return parsed, true, nil
	}
	return parsed, false, err
}

// Print writes every setting in force, in the form of a configuration file. head is a comment before them, or empty,
// and shown returns what people may read of a text.
func Print(w io.Writer, all []*kong.Flag, head string, shown func(flag, text string) string) error {
	file := yaml.Node{Kind: yaml.MappingNode, HeadComment: head}
	for _, flag := range all {
		if !InFile(flag) {
			continue
		}
		value := flag.Target.Interface()
		switch v := value.(type) {
		case string:
			value = shown(flag.Name, v)
		case time.Duration:
			value = v.String()
		}
		var node yaml.Node
		if err := node.Encode(value); err != nil {
			return fmt.Errorf("print %s: %w", flag.Name, err)
		}
		file.Content = append(file.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: flag.Name}, &node)
	}
	return yaml.NewEncoder(w).Encode(&file)
}
