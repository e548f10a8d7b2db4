package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completeArgument is the first argument of the shells' own calls. What follows are a
// line's words up to the one that is being typed, which may be empty.
const completeArgument = "__complete"

type completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}."`
}

// Run prints a script with which a shell asks weirctl itself: a newer weirctl needs no new script.
func (s completion) Run(c *call) error {
	_, err := fmt.Fprint(c.stdout, completions[s.Shell])
	return err
}

// Where there is no answer, the shells offer files.
var completions = map[string]string{
	"bash": `# source <(weirctl completion bash)
_weirctl() {
	local IFS=$'\n'
	COMPREPLY=($("${COMP_WORDS[0]}" ` + completeArgument + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _weirctl weirctl
`,
	"zsh": `#compdef weirctl
# source <(weirctl completion zsh)
_weirctl() {
	local -a found
	found=("${(@f)$("${words[1]}" ` + completeArgument + ` "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
compdef _weirctl weirctl
`,
	"fish": `# weirctl completion fish | source
function __weirctl_complete
	set -l typed (commandline -opc)
	set -l current (commandline -ct)
	set -l found ($typed[1] ` + completeArgument + ` $typed[2..-1] "$current" 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path "$current"
	end
end
complete -c weirctl -f -a '(__weirctl_complete)'
`,
}

// candidates are the completions of the last word, by the commands and flags that the parser
// knows; none where the value is free.
func candidates(model *kong.Application, words []string) (found []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	typed, before := words[len(words)-1], words[:len(words)-1]
	node, positional := model.Node, 0
	var awaited *kong.Value // of the flag before
	for _, word := range before {
		switch {
		case word == "=": // bash takes --flag=value apart
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

// shownFlags are a command's flags; of a group with a default command, that one's too.
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

// having are those that begin with what was typed, in order.
func having(prefix string, all []string) (found []string) {
	for _, one := range all {
		if one != "" && strings.HasPrefix(one, prefix) {
			found = append(found, one)
		}
	}
	slices.Sort(found)
	return found
}
