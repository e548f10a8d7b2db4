package nodecmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/shared/strict/flags"
)

// checkRulesCommand is the first argument that makes weir-node check rules and end, instead of
// serving.
const checkRulesCommand = "check-rules"

const aboutCheckRules = `Check rules for Envoy's rate limit service as a node would read them.

Prints every fault with its file, line and rule. With --descriptor it also
prints which rule matches it. The exit code is 0, 1 if no rule matches a
descriptor, or 2 if rules are at fault.`

// checkRules is the command line of check-rules.
type checkRules struct {
	Path       []string `arg:"" help:"Files of rules. A folder means its *.yaml and *.yml files."`
	Domain     string   `placeholder:"NAME" help:"Domain of the descriptors. Required if the files have rules for several domains."`
	Descriptor []string `sep:"none" placeholder:"KEY=VALUE,…" help:"A descriptor as Envoy sends it; write a special byte as % and two hexadecimal digits. May be repeated."`
}

// parseCheckRules reads the arguments after check-rules. done reports that it has printed the help.
func parseCheckRules(args []string, stdout, stderr io.Writer) (command checkRules, done bool, err error) {
	parser, err := kong.New(&command, flags.Strict(), kong.Name("weir-node "+checkRulesCommand),
		kong.Description(aboutCheckRules), kong.Writers(stdout, stderr))
	if err == nil {
		_, done, err = flags.Parse(parser, args)
	}
	return command, done, err
}

// runCheckRules checks the rules and returns the exit code.
func runCheckRules(args []string, stdout, stderr io.Writer) int {
	command, done, err := parseCheckRules(args, stdout, stderr)
	switch {
	case done:
		return exitOK
	case err == nil:
		var source *rls.Source
		if source, err = rls.OpenRules(command.Path...); err == nil {
			return command.explain(source, stdout, stderr)
		}
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "weir-node: %s\n", strings.TrimSuffix(line, "\n"))
	}
	return exitUsage
}

func (c checkRules) explain(source *rls.Source, stdout, stderr io.Writer) (code int) {
	fmt.Fprintf(stdout, "ok: domains %d, rules %d\n", source.Domains(), source.Rules())
	for _, descriptor := range c.Descriptor {
		words, matched, err := source.Explain(c.Domain, descriptor)
		if err != nil {
			fmt.Fprintf(stderr, "weir-node: %v\n", err)
			return exitUsage
		}
		if !matched {
			code = exitFailed
		}
		fmt.Fprintf(stdout, "%s: %s\n", descriptor, words)
	}
	return code
}
