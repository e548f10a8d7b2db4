package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane/cmd/weir-control/preview"
	"github.com/weirhq/weir/shared/mysqldsn"
	"github.com/weirhq/weir/shared/strict/flags"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// run is the program. It returns its exit code when ctx is done and everything that
// it started has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if slices.Equal(args, []string{preview.Argument}) { // called by ourselves
		if err := preview.Work(os.Stdin, stdout); err != nil {
			_, _ = fmt.Fprintf(stderr, "weir-control: %v\n", err)
			return exitFailure
		}
		return exitOK
	}
	if len(args) > 0 && args[0] == identityArgument {
		return identityKey(args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == migrateArgument {
		return migrateTables(ctx, args[1:], stdout, stderr)
	}
	c, model, done, err := parse(args, stdout, stderr, version())
	if done && err == nil {
		return exitOK
	}
	if err == nil && c.PrintConfig {
		err = flags.Print(stdout, model.Flags, "WEIR_MYSQL_DSN: "+maskedDSN(c), func(_, text string) string { return text })
		if err == nil {
			return exitOK
		}
	}
	if err == nil {
		err = c.validate()
	}
	var dsn string
	if err == nil {
		dsn, err = c.dsn()
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			_, _ = fmt.Fprintf(stderr, "weir-control: %s\n", strings.TrimSuffix(line, "\n"))
		}
		_, _ = fmt.Fprintln(stderr, "Try weir-control --help.")
		return exitUsage
	}

	log := newLog(stderr, c.LogLevel)
	p, err := start(ctx, c, dsn, log)
	if err != nil {
		log.Error("cannot start", "error", err)
		return exitFailure
	}
	if err := p.wait(); err != nil {
		log.Error("ended", "error", err)
		return exitFailure
	}
	return exitOK
}

// maskedDSN returns the DSN for people to read, or why there is none.
func maskedDSN(c *config) string {
	dsn, err := c.dsn()
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return mysqldsn.Mask(dsn)
}

func newLog(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // kong has checked it
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}))
}

// version returns the module's version, as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
