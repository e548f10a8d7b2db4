package commandline

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Candidates returns the completions of the last word according to the parser's commands and flags. It returns none if
// the value is free text.
func Candidates(model *kong.Application, words []string) (found []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	typed, before := words[len(words)-1], words[:len(words)-1]
	node, positional := model.Node, 0
	var awaited *kong.Value // value of the flag before
	for _, word := range before {
		switch {
		case word == "=": // bash splits --flag=value
		case awaited != nil:
			awaited = nil
		case strings.HasPrefix(word, "-"):
			if f := flagOf(node, word); f != nil && !f.IsBool() && !strings.Contains(word, "=") {
				awaited = f.Value
			}
		default:
			if child := childOf(node, word); child != nil {
				node = child
			} else {
				positional++
			}
		}
	}
	name, value, assigned := strings.Cut(typed, "=")
	switch flag := flagOf(node, name); {
	case awaited != nil:
		return having(strings.TrimPrefix(typed, "="), awaited.EnumSlice())
	case assigned && flag != nil:
		for _, v := range having(value, flag.EnumSlice()) {
			found = append(found, name+"="+v)
		}
		return found
	case strings.HasPrefix(typed, "-"):
		return having(typed, flagNames(node))
	case positional < len(node.Positional):
		return having(typed, node.Positional[positional].EnumSlice())
	}
	for _, child := range node.Children {
		if !child.Hidden {
			found = append(found, child.Name)
		}
	}
	return having(typed, found)
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	word, _, _ = strings.Cut(word, "=")
	for _, group := range shownFlags(node) {
		for _, f := range group {
			if slices.Contains(spelled(f), word) || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// shownFlags returns a command's flags. For a group with a default command it returns the default command's.
func shownFlags(node *kong.Node) [][]*kong.Flag {
	if node.DefaultCmd != nil {
		node = node.DefaultCmd
	}
	return node.AllFlags(true)
}

func flagNames(node *kong.Node) (names []string) {
	for _, group := range shownFlags(node) {
		for _, f := range group {
			names = append(names, spelled(f)...)
		}
	}
	return names
}

func spelled(f *kong.Flag) []string {
	names := []string{"--" + f.Name}
	if f.Tag.Negatable != "" {
		names = append(names, "--no-"+f.Name)
	}
	return names
}

// having returns the texts that begin with prefix, sorted.
func having(prefix string, all []string) (found []string) {
	for _, one := range all {
		if one != "" && strings.HasPrefix(one, prefix) {
			found = append(found, one)
		}
	}
	slices.Sort(found)
	return found
}
