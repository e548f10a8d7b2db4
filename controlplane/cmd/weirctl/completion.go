package main

import (
	"fmt"
)

// completeArgument is the first argument of calls by shells. The words of the command line follow, up to the word that
// is being typed, which can be empty.
const completeArgument = "__complete"

type completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}."`
}

// Run prints a script with which a shell calls weirctl for completions, so a newer weirctl needs no new script.
func (s completion) Run(c *call) error {
	_, err := fmt.Fprint(c.stdout, completions[s.Shell])
	return err
}

// If there are no completions, the shells offer files.
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
