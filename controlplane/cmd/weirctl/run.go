package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/commandline"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/contexts"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/shared/strict/flags"
)

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitUnavailable = 4
	exitWarning     = 5
	exitCritical    = 6
)

const description = `Shows and operates a Weir fleet through the API of weir-control.

Exit codes:

  0  done
  1  it failed; the message has the reason
  2  the command or one of its values is wrong
  3  the API cannot be reached: is weir-control running, is --api right?
  4  the API answers, but MySQL or Restate behind it does not
  5  health or doctor found something that needs a look
  6  health or doctor found something that does not work

With -o json or -o yaml the answer is the API's own, in its JSON form: numbers of
64 bits are strings, times are Unix milliseconds. Errors go to stderr in each form.

A command that cannot be undone asks on the terminal first, or requires --yes. With
--dry-run a command that changes something only reads from the API, and prints the
call that it would make.`

// cli is the command line.
type cli struct {
	contexts.Flags
	Output  form          `short:"o" enum:"table,json,yaml" default:"table" help:"How to print answers: ${enum} (default ${default})."`
	DryRun  bool          `help:"Print the call that would make the change, and change nothing."`
	Yes     bool          `short:"y" help:"Do not ask before a change that cannot be undone. Required without a terminal."`
	Timeout time.Duration `default:"150s" help:"How long to wait for the answer; for export and apply, for all of their calls together."`

	Cleanup struct {
		Status cleanupStatus `cmd:"" help:"Show the schedule, the lag and the newest runs."`
		Run    cleanupRun    `cmd:"" help:"Run one cleanup now, paused or not, and wait for it."`
		Pause  cleanupPause  `cmd:"" help:"Stop the schedule until resume. Expired rows pile up meanwhile."`
		Resume cleanupResume `cmd:"" help:"Start the schedule again, and run one cleanup immediately."`
	} `cmd:"" help:"The deletion of expired rows."`
	Rollout struct {
		Preview  rolloutPreview  `cmd:"" help:"Predict, by simulation, what a tuning would do to this fleet."`
		Start    rolloutStart    `cmd:"" help:"Roll out a tuning, or with --limits a change of limits, stage by stage."`
		Status   rolloutStatus   `cmd:"" help:"Show a rollout. With --watch follow it until it is over: exit code 0 if it is done, 1 if it was rolled back or aborted, or if there is none."`
		Approve  rolloutApprove  `cmd:"" help:"Approve the stage that waits for it."`
		Pause    rolloutPause    `cmd:"" help:"Pause a rollout. The applied tuning or limits stay in force."`
		Resume   rolloutResume   `cmd:"" help:"Resume a rollout. The paused phase begins again."`
		Abort    rolloutAbort    `cmd:"" help:"Stop a rollout, and roll back the applied tuning or limits."`
		Rollback rolloutRollback `cmd:"" help:"Roll back the newest rollout that is done."`
		History  rolloutHistory  `cmd:"" help:"List the newest rollouts, or the events of a rollout."`
	} `cmd:"" help:"Staged rollouts of tuning and of limits."`
	Tuning struct {
		Get     tuningGet     `cmd:"" help:"Show the tuning in force, of the fleet and of each region that has its own."`
		Diff    tuningDiff    `cmd:"" help:"Show what a document, a field or a version would change in the tuning in force; without one, how regions differ from the fleet."`
		History tuningHistory `cmd:"" help:"List the versions of the tuning, with author, time and reason."`
		Set     tuningSet     `cmd:"" help:"Set a tuning at once, without stages: for an emergency. Otherwise see weirctl rollout start."`
	} `cmd:"" help:"The tuning of regions."`
	Retire struct {
		Start   retireStart   `cmd:"" help:"Start to remove ratelimit_blocklist, the table of the former design: observe it, delete what has expired, then wait for an approval."`
		Status  retireStatus  `cmd:"" help:"Show the retirement. With --watch follow it until it is over: exit code 0 if the table is dropped, 1 if it was aborted."`
		Approve retireApprove `cmd:"" help:"Approve the rename, or later the drop, of the table."`
		Abort   retireAbort   `cmd:"" help:"Stop a retirement, and give the table its name back."`
		History retireHistory `cmd:"" help:"List all retirements of the table, or with --events the events of the newest."`
	} `cmd:"" help:"Remove the table through which regions once shared verdicts."`
	Override struct {
		Set    overrideSet    `cmd:"" help:"Set the limit of an identifier, or of all identifiers that a pattern or a network matches. Flags that are not set keep the override's values."`
		List   overrideList   `cmd:"" help:"List a namespace's overrides."`
		Delete overrideDelete `cmd:"" help:"Delete an override."`
	} `cmd:"" help:"Limits of single identifiers."`
	Namespace struct {
		Set  namespaceSet  `cmd:"" help:"Change how a namespace decides. Flags that are not set keep the current values."`
		List namespaceList `cmd:"" help:"List a workspace's namespaces that have settings."`
	} `cmd:"" help:"How namespaces decide."`
	Export exportAll `cmd:"" help:"Print all namespaces, overrides and tunings as one document: YAML, or JSON with -o json."`
	Apply  applyAll  `cmd:"" help:"Change namespaces and overrides to the values in a document, after showing the differences. The whole fleet gets them at once; rollout start --limits stages them. Tuning is only compared."`
	Usage  usageShow `cmd:"" help:"Show the accepted and denied cost of namespaces by the hour or day, for up to 90 days."`
	Keys   struct {
		List   keysList   `cmd:"" help:"List a namespace's keys with their counts, limits, and when they pass again, by identifier."`
		Export keysExport `cmd:"" help:"Print a namespace's keys as JSON lines or CSV, a line for each key and window. -o has no effect."`
		Top    keysTop    `cmd:"" help:"List the keys with the most cost in their windows, or the keys denied most, over all regions."`
		Held   keysHeld   `cmd:"" help:"List the leases and reservations of all regions that are held longest: holder, node, age and end."`
		Show   keysShow   `cmd:"" help:"Show one key: its two cells with each region's part, and when a request would pass."`
	} `cmd:"" help:"Counts, leases and reservations of keys."`
	Token struct {
		Create tokenCreate `cmd:"" help:"Make a token, and print it once."`
		Rotate tokenRotate `cmd:"" help:"Give a token a new secret and print it, once. The old secret stays valid for --overlap."`
		Revoke tokenRevoke `cmd:"" help:"Make a token invalid for good."`
		List   tokenList   `cmd:"" help:"List all tokens, including revoked tokens."`
	} `cmd:"" help:"Tokens for the API, and their roles."`
	Fleets struct {
		List   contextList   `cmd:"" help:"List all contexts, and the current context."`
		Use    contextUse    `cmd:"" help:"Make a context current."`
		Set    contextSet    `cmd:"" help:"Store --api, --ca, --cert, --key and --token-file under a name. Flags that are left out keep their values."`
		Delete contextDelete `cmd:"" help:"Delete a context."`
	} `cmd:"" name:"context" help:"Names for fleets, each with its API and the place of its token."`
	Health  health     `cmd:"" help:"Show the problems of the fleet and its servers, since when they exist, and the next step. The worst finding sets the exit code."`
	Doctor  doctor     `cmd:"" help:"Check how MySQL, Redis, Restate and the nodes are set up. The worst result sets the exit code."`
	Explain explainKey `cmd:"" help:"Show how nodes would decide a request: every term, its source and its age."`
	Audit   struct {
		List   auditList   `cmd:"" default:"withargs" help:"List changes, newest first. The default of audit."`
		Verify auditVerify `cmd:"" help:"Check the hash chain of the log, and name the first change that was altered, deleted, inserted or moved. Exit code 1 if there is one."`
		Export auditExport `cmd:"" help:"Print the log with its hash chain as JSON lines, oldest first. -o has no effect."`
	} `cmd:"" help:"The log of changes, with author and reason."`
	Simulate simulate       `cmd:"" help:"Predict what a tuning would do to a fleet of any shape."`
	Reset    resetSet       `cmd:"" help:"Discard every region's counts of an identifier, for example to let a customer back in."`
	Resets   resetList      `cmd:"" help:"List a namespace's resets, newest first."`
	Fleet    fleetCommand   `cmd:"" help:"List the nodes of all regions, by their heartbeats."`
	Version  versionCommand `cmd:"" help:"Print the version of weirctl."`

	Completion completion `cmd:"" help:"Print a shell's completion of weirctl's commands, flags and values."`
}

// by has the author and the reason of a change, for the audit log.
type by struct {
	Reason string `required:"" placeholder:"TEXT" help:"Reason of the change, for the audit log."`
	Actor  string `env:"WEIR_ACTOR" placeholder:"NAME" help:"Who makes the change, for the audit log. Default: the user of this machine."`
}

// terminal is the environment of a run.
type terminal struct {
	stdin          io.Reader
	interactive    bool // a person can answer on stdin
	stdout, stderr io.Writer
	now            func() time.Time // nil: time.Now
	user           string           // empty: the user of this machine
}

// run is the program. It returns the exit code.
func run(ctx context.Context, args []string, t terminal) int {
	if t.now == nil {
		t.now = time.Now
	}
	var c cli
	parser, err := kong.New(&c,
		kong.Name("weirctl"), kong.Description(description), kong.Writers(t.stdout, t.stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), flags.Strict())
	if err != nil {
		return t.fail(err, exitFailure, "")
	}
	if len(args) > 0 && args[0] == completeArgument {
		for _, candidate := range commandline.Candidates(parser.Model, args[1:]) {
			_, _ = fmt.Fprintln(t.stdout, candidate)
		}
		return exitOK
	}
	command, done, err := flags.Parse(parser, args)
	if done {
		return exitOK
	}
	if err != nil {
		return t.fail(err, exitUsage, "See "+helpFor(err)+".")
	}
	area, _, _ := strings.Cut(command.Command(), " ")
	request := &call{terminal: t, patient: ctx, timeout: c.Timeout, form: c.Output, dryRun: c.DryRun, yes: c.Yes,
		fleet: c.Flags}
	request.ctx, request.cancel = context.WithTimeout(ctx, c.Timeout)
	defer func() { request.cancel() }()
	if !slices.Contains([]string{"context", "completion", "version"}, area) { // these call no API
		if hint, err := request.connect(); err != nil {
			return t.fail(err, exitUsage, hint)
		}
		defer request.transport.CloseIdleConnections()
	}
	if err := request.shown(command.Run(request)); err != nil {
		code, hint := explain(request.ctx, err, request.fleet.API, area)
		if code == exitUsage {
			err = errors.New(commandline.FlagWordsOf(command.Flags()).Rewrite(apiclient.Words(err)))
		}
		return t.fail(err, code, hint)
	}
	return exitOK
}

// helpFor returns the help command for the command line in a parse error.
func helpFor(err error) string {
	command := "weirctl"
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok {
		for _, step := range wrong.Context.Path {
			if step.Command != nil {
				command += " " + step.Command.Name
			}
		}
	}
	return command + " --help"
}

// fail prints an error with the next step. Further lines of its message, such as those of a difference, are indented.
func (t terminal) fail(err error, code int, hint string) int {
	begin := "weirctl: "
	for line := range strings.SplitSeq(strings.TrimRight(apiclient.Words(err), "\n"), "\n") {
		_, _ = fmt.Fprintf(t.stderr, "%s%s\n", begin, format.Plain(line))
		begin = "  "
	}
	if hint != "" {
		_, _ = fmt.Fprintln(t.stderr, hint)
	}
	return code
}

// errRunFailed is the error of a cleanup run that failed.
var errRunFailed = errors.New("the cleanup ended in an error")

// hinted is an error with its exit code and the next step.
type hinted struct {
	error
	code int
	hint string
}

// Unwrap returns the error without the hint.
func (t *hinted) Unwrap() error { return t.error }

// look maps an area to the command that shows its state.
var look = map[string]string{"cleanup": "cleanup status", "rollout": "rollout status", "retire": "retire status",
	"tuning":   "tuning get",
	"simulate": "rollout status", "token": "token list", "override": "override list", "namespace": "namespace list",
	"keys": "keys top", "usage": "usage", "reset": "resets", "export": "fleet", "apply": "audit",
	"fleet": "fleet", "health": "health", "doctor": "doctor", "audit": "audit"}

// explain returns the exit code of an error, and the next step.
func explain(ctx context.Context, err error, api, area string) (code int, hint string) {
	if known, ok := errors.AsType[*hinted](err); ok {
		return known.code, known.hint
	}
	var rpc *connect.Error
	switch {
	case errors.As(err, &rpc):
	case errors.Is(err, controlplane.ErrInvalid):
		return exitUsage, "Correct it and try again; see weirctl " + area + " --help."
	case errors.Is(err, errRunFailed):
		return exitFailure, "The schedule tries again; see weirctl cleanup status."
	default:
		return exitFailure, ""
	}
	afterwards := "The change may still happen: see weirctl " + look[area] + "."
	switch rpc.Code() {
	case connect.CodeInvalidArgument:
		return exitUsage, "Correct it and try again; see weirctl --help."
	case connect.CodeCanceled:
		return exitFailure, afterwards
	case connect.CodeDeadlineExceeded:
		if ctx.Err() != nil {
			return exitUnavailable, "There was no answer within --timeout. " + afterwards
		}
		return exitUnavailable, afterwards
	case connect.CodeUnavailable:
		if connect.IsWireError(err) {
			return exitUnavailable, fmt.Sprintf("weir-control answers; %s/readyz names the server behind it that does not.", api)
		}
		return exitUnreachable, fmt.Sprintf("The API at %s cannot be reached: start weir-control there, or name another "+
			"with --api or WEIR_API.", api)
	case connect.CodeUnauthenticated:
		return exitFailure, "Set WEIR_TOKEN or --token-file to a token that is in force; an admin makes one with weirctl " +
			"token create."
	case connect.CodePermissionDenied:
		if connect.IsWireError(err) {
			return exitFailure, "Use a token that may do this; an admin makes one with weirctl token create."
		}
		return exitFailure, "weir-control on loopback accepts only its allowed host names; add the name of a " +
			"proxy to its --api-allowed-hosts."
	case connect.CodeAborted: // the message has the difference
		return exitFailure, "Nothing has changed. Somebody else has changed these settings: run the command again to see " +
			"what it would change now."
	case connect.CodeFailedPrecondition, connect.CodeNotFound:
		if area == "retire" && rpc.Code() == connect.CodeNotFound {
			return exitFailure, "Start one, if the table is still there: see weirctl retire start --help."
		}
		if area == "retire" { // an approval that comes too late is rejected with a failed precondition
			return exitFailure, "The request was refused. See weirctl " + look[area] + "."
		}
		return exitFailure, "Nothing has changed. See the current state: weirctl " + look[area] + "."
	case connect.CodeUnknown:
		if !connect.IsWireError(err) { // the connection broke during the call
			return exitUnreachable, fmt.Sprintf("The connection to %s broke. If it requires client certificates, see --cert "+
				"and --key. %s", api, afterwards)
		}
	case connect.CodeUnimplemented:
		return exitFailure, fmt.Sprintf("%s is not the API of a weir-control, or that one is older than this "+
			"weirctl: correct --api, or upgrade it.", api)
	}
	return exitFailure, "The cause is in weir-control's log."
}

// actor returns the user of this machine.
func (c *call) actor() (string, error) {
	if c.user != "" {
		return c.user, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("the user of this machine is unknown; name yourself with --actor: %w", err)
	}
	return u.Username, nil
}

type versionCommand struct{}

func (versionCommand) Run(c *call) error {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	if c.form.documents() {
		return c.document(map[string]string{"version": version})
	}
	_, err := fmt.Fprintln(c.stdout, "weirctl", version)
	return err
}
