// Weir-gubernator replaces gubernator's daemon: it reads the same configuration and answers the same clients, as a node
// of Weir. The effect of each setting is in ../../../README.md.
//
//	weir-gubernator [-config FILE] [-debug]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/weirhq/weir/dataplane/node/nodecmd"
)

const name = "weir-gubernator"

// Exit codes, the same as nodecmd's.
const (
	exitOK    = 0
	exitUsage = 2 // the configuration is at fault
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the process's exit code when the node has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "", "file of settings, KEY=VALUE each; its settings win over the environment")
	debug := flags.Bool("debug", false, "write a line for everything that may matter")
	version := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil: // and printed
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", name, flags.Arg(0))
		return exitUsage
	case *version:
		fmt.Fprintln(stdout, name, nodecmd.Build())
		return exitOK
	}
	s, err := load(*path, *debug)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(stderr, "%s: %s\n", name, strings.TrimSuffix(line, "\n"))
		}
		return exitUsage
	}
	if s.tls {
		signal.Ignore(syscall.SIGHUP) // gubernator's sign to read certificates again; a node does so by itself
	}
	s.announce(slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: s.level})))
	return s.program().Main(ctx, s.flags, stdout, stderr)
}

// announce logs settings without an effect, a process without Redis, and public addresses without authentication.
func (s *settings) announce(logger *slog.Logger) {
	if len(s.ignored) > 0 {
		logger.Warn("these settings have no effect here: nodes share counts through Redis and have no peers",
			"settings", s.ignored)
	}
	if s.alone {
		logger.Warn("WEIR_REDIS_URL is not set: this process counts by itself and shares no limit with others")
	}
	if len(s.public) > 0 {
		logger.Warn("other machines can reach these addresses, as configured, and callers need neither a certificate nor "+
			"a token: any of them can spend any budget and list the busiest keys", "addresses", s.public)
	}
}
