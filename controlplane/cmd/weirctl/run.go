package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/user"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
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

const description = `Shows and steers a Weir fleet through the API of weir-control.

Exit codes:

  0  done
  1  it failed; the message says why
  2  the command or one of its values is wrong
  3  the API cannot be reached: is weir-control running, is --api right?
  4  the API answers, but MySQL or Restate behind it does not
  5  health or doctor found something that needs a look
  6  health or doctor found something that does not work

With --json the answer is the API's own, in its JSON form: numbers of 64 bits are
strings, times are Unix milliseconds. Errors go to stderr in either form.`

// cli is the command line.
type cli struct {
	API     string        `name:"api" env:"WEIR_API" default:"http://127.0.0.1:7080" placeholder:"URL" help:"The API of weir-control (default ${default})."`
	JSON    bool          `name:"json" help:"Print the API's answer as JSON, for programs."`
	Timeout time.Duration `default:"150s" help:"How long to wait for the answer; of export and apply, for all of their calls together."`

	CA   string `name:"ca" env:"WEIR_CA" placeholder:"FILE" help:"PEM file with the authorities of the API's certificate. Default: those of this machine."`
	Cert string `env:"WEIR_CERT" placeholder:"FILE" help:"PEM file with a certificate to show to the API."`
	Key  string `env:"WEIR_KEY" placeholder:"FILE" help:"PEM file with its key."`

	TokenFile string `env:"WEIR_TOKEN_FILE" placeholder:"FILE" help:"File that holds the token to call with. Default: the environment's WEIR_TOKEN."`

	Cleanup struct {
		Status cleanupStatus `cmd:"" help:"How the deletion of expired rows is doing, and what it did lately."`
		Run    cleanupRun    `cmd:"" help:"Run one cleanup now, paused or not, and wait for it."`
		Pause  cleanupPause  `cmd:"" help:"Stop the schedule until it is resumed. Expired rows pile up meanwhile."`
		Resume cleanupResume `cmd:"" help:"Start the schedule again, with a run at once."`
	} `cmd:"" help:"The deletion of expired rows."`
	Rollout struct {
		Preview  rolloutPreview  `cmd:"" help:"Predict, by simulation, what a tuning would do to this fleet."`
		Start    rolloutStart    `cmd:"" help:"Roll a tuning out, stage by stage."`
		Status   rolloutStatus   `cmd:"" help:"How a rollout stands. With --watch until it is over: exit code 0 when it is done, 1 when it was rolled back or aborted. Exit code 1 when there has been none."`
		Approve  rolloutApprove  `cmd:"" help:"Let the stage begin that waits for an approval."`
		Pause    rolloutPause    `cmd:"" help:"Stand still, with whatever has been applied."`
		Resume   rolloutResume   `cmd:"" help:"Go on. The phase that was paused begins again."`
		Abort    rolloutAbort    `cmd:"" help:"Give up, and roll back what was applied."`
		Rollback rolloutRollback `cmd:"" help:"Take back the newest rollout that is done."`
		History  rolloutHistory  `cmd:"" help:"The newest rollouts; of one, what happened when."`
	} `cmd:"" help:"Staged rollouts of tuning."`
	Retire struct {
		Start   retireStart   `cmd:"" help:"Begin to retire the table: it observes, deletes what has expired, and then waits for you."`
		Status  retireStatus  `cmd:"" help:"How the retirement stands. With --watch until it is over: exit code 0 when the table is dropped, 1 when it was aborted."`
		Approve retireApprove `cmd:"" help:"Let the table be renamed, or, a second step, dropped."`
		Abort   retireAbort   `cmd:"" help:"Give up, and give the table its name back."`
		History retireHistory `cmd:"" help:"All retirements of the table; with --events, what happened in the newest."`
	} `cmd:"" help:"The way out of the table that verdicts were shared through."`
	Override struct {
		Set    overrideSet    `cmd:"" help:"Set the limit of an identifier, or of all that a pattern matches. A flag that is left out keeps what an override that is there has."`
		List   overrideList   `cmd:"" help:"A namespace's overrides."`
		Delete overrideDelete `cmd:"" help:"Take an override away."`
	} `cmd:"" help:"Limits of single identifiers."`
	Namespace struct {
		Set  namespaceSet  `cmd:"" help:"Change how a namespace decides. A flag that is left out keeps what is set."`
		List namespaceList `cmd:"" help:"A workspace's namespaces that have settings."`
	} `cmd:"" help:"How namespaces decide."`
	Export exportAll `cmd:"" help:"Print all namespaces, overrides and tunings as one document, YAML or with --json JSON."`
	Apply  applyAll  `cmd:"" help:"Make namespaces and overrides those of a document: show what differs, and change that. Tuning is only compared."`
	Keys   struct {
		Top  keysTop  `cmd:"" help:"The keys with most cost in their windows, or those most denied, over all regions."`
		Show keysShow `cmd:"" help:"One key: its two cells with each region's part, and when a request would pass."`
	} `cmd:"" help:"What keys are doing."`
	Token struct {
		Create tokenCreate `cmd:"" help:"Make a token and print it, once."`
		Revoke tokenRevoke `cmd:"" help:"End a token."`
		List   tokenList   `cmd:"" help:"All tokens, revoked ones too."`
	} `cmd:"" help:"Who may call the API, and as what."`
	Health   health         `cmd:"" help:"What is wrong with the fleet and what it stands on, since when, and what to do. The exit code is the worst of it."`
	Doctor   doctor         `cmd:"" help:"Check how MySQL, Redis, Restate and the nodes are set up. The exit code is the worst of it."`
	Explain  explainKey     `cmd:"" help:"Why nodes would answer a request as they do: every term, where it is from and how old. Asks the nodes themselves."`
	Audit    auditList      `cmd:"" help:"What was changed, by whom and why, newest first."`
	Simulate simulate       `cmd:"" help:"Predict what a tuning would do to a fleet of any shape."`
	Reset    resetSet       `cmd:"" help:"Forget what was counted of an identifier, in every region: let a customer back in."`
	Resets   resetList      `cmd:"" help:"A namespace's resets, the newest first."`
	Fleet    fleet          `cmd:"" help:"The nodes of all regions, as their heartbeats describe them."`
	Version  versionCommand `cmd:"" help:"Print the version of weirctl."`

	Completion completion `cmd:"" help:"Print what makes a shell complete weirctl's commands, flags and values."`
}

// by is who makes a change, and why: both end up in the audit log.
type by struct {
	Reason string `required:"" placeholder:"TEXT" help:"Why, for the audit log."`
	Actor  string `env:"WEIR_ACTOR" placeholder:"NAME" help:"Who, for the audit log. Default: the user of this machine."`
}

// terminal is what a run writes to, and what it takes from the machine.
type terminal struct {
	stdout, stderr io.Writer
	now            func() time.Time // nil: time.Now
	user           string           // empty: the user of this machine
}

// call is what a command needs to do its work.
type call struct {
	terminal
	ctx         context.Context // done after --timeout, which bounds all calls of a command
	patient     context.Context // not, for commands that watch
	api         controlv1connect.ControlServiceClient
	rollouts    controlv1connect.RolloutServiceClient
	retirements controlv1connect.RetirementServiceClient
	tokens      controlv1connect.TokenServiceClient
	settings    controlv1connect.SettingsServiceClient
	keys        controlv1connect.TopKeysServiceClient
	health      controlv1connect.HealthServiceClient
	audit       controlv1connect.AuditServiceClient
	json        bool
	transport   http.RoundTripper // without a token
}

// exited is what kong's own way out (--help) is turned into.
type exited int

// run is the program: it returns its exit code.
func run(ctx context.Context, args []string, t terminal) (code int) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case exited:
			code = int(p)
		default:
			panic(p)
		}
	}()
	if t.now == nil {
		t.now = time.Now
	}
	var c cli
	parser, err := kong.New(&c,
		kong.Name("weirctl"), kong.Description(description), kong.Writers(t.stdout, t.stderr),
		kong.Exit(func(code int) { panic(exited(code)) }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		return t.fail(err, exitFailure, "")
	}
	if len(args) > 0 && args[0] == completeArgument {
		for _, candidate := range candidates(parser.Model, args[1:]) {
			_, _ = fmt.Fprintln(t.stdout, candidate)
		}
		return exitOK
	}
	command, err := parser.Parse(args)
	if err != nil {
		return t.fail(err, exitUsage, "See weirctl --help.")
	}
	if !strings.HasPrefix(c.API, "http://") && !strings.HasPrefix(c.API, "https://") {
		return t.fail(fmt.Errorf("--api is %s, want http://host:port or https://host:port", c.API), exitUsage,
			"Correct --api or WEIR_API.")
	}
	patient := ctx
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	token, err := secret(c.TokenFile)
	if err != nil {
		return t.fail(err, exitUsage, "See weirctl --help.")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = c.tls(); err != nil {
		return t.fail(err, exitUsage, "Correct --ca, --cert or --key.")
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: bearer{transport, token}}
	err = command.Run(&call{
		terminal: t, ctx: ctx, patient: patient, json: c.JSON, transport: transport,
		api:         controlv1connect.NewControlServiceClient(client, c.API),
		rollouts:    controlv1connect.NewRolloutServiceClient(client, c.API),
		retirements: controlv1connect.NewRetirementServiceClient(client, c.API),
		tokens:      controlv1connect.NewTokenServiceClient(client, c.API),
		settings:    controlv1connect.NewSettingsServiceClient(client, c.API),
		keys:        controlv1connect.NewTopKeysServiceClient(client, c.API),
		health:      controlv1connect.NewHealthServiceClient(client, c.API),
		audit:       controlv1connect.NewAuditServiceClient(client, c.API),
	})
	if err != nil {
		area, _, _ := strings.Cut(command.Command(), " ")
		code, hint := explain(ctx, err, c.API, area)
		return t.fail(err, code, hint)
	}
	return exitOK
}

func (t terminal) fail(err error, code int, hint string) int {
	text := err.Error()
	var rpc *connect.Error
	if errors.As(err, &rpc) {
		text = rpc.Message()
	}
	_, _ = fmt.Fprintf(t.stderr, "weirctl: %s\n", plain(text))
	if hint != "" {
		_, _ = fmt.Fprintln(t.stderr, hint)
	}
	return code
}

// errRunFailed is a run that was made, and did not go well.
var errRunFailed = errors.New("the cleanup ended in an error")

// told is an error of a command that knows its exit code and what to do next.
type told struct {
	error
	code int
	hint string
}

// Unwrap is the error that is told.
func (t *told) Unwrap() error { return t.error }

// look are the commands that show what there is.
var look = map[string]string{"cleanup": "cleanup status", "rollout": "rollout history", "retire": "retire status",
	"simulate": "rollout history", "token": "token list", "override": "override list", "namespace": "namespace list",
	"keys": "keys top", "reset": "resets", "export": "fleet", "apply": "audit", "fleet": "fleet", "health": "health",
	"doctor": "doctor", "audit": "audit"}

// explain gives an error its exit code, and says what to do next.
func explain(ctx context.Context, err error, api, area string) (code int, hint string) {
	var known *told
	if errors.As(err, &known) {
		return known.code, known.hint
	}
	var rpc *connect.Error
	if !errors.As(err, &rpc) {
		return exitFailure, "It will be tried again on schedule; see weirctl cleanup status."
	}
	afterwards := "What was asked for may still happen: see weirctl " + look[area] + "."
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
			return exitUnavailable, fmt.Sprintf("weir-control itself answers; %s/readyz shows what does not.", api)
		}
		return exitUnreachable, fmt.Sprintf("The API at %s cannot be reached: start weir-control there, or name another "+
			"with --api or WEIR_API.", api)
	case connect.CodeUnauthenticated:
		return exitFailure, "Set WEIR_TOKEN or --token-file to a token that is in force; an admin makes one with weirctl " +
			"token create."
	case connect.CodePermissionDenied:
		if connect.IsWireError(err) {
			return exitFailure, "Use a token of that role; an admin makes one with weirctl token create."
		}
		return exitFailure, "weir-control on loopback takes requests for hosts that it knows; let it allow the name of a " +
			"proxy with --api-allowed-hosts."
	case connect.CodeFailedPrecondition, connect.CodeNotFound:
		if area == "retire" && rpc.Code() == connect.CodeNotFound {
			return exitFailure, "Start one, if the table is still there: see weirctl retire start --help."
		}
		if area == "retire" { // an approval that comes too late sends it back
			return exitFailure, "It was not done. See how it stands: weirctl " + look[area] + "."
		}
		return exitFailure, "Nothing has changed. See what is there: weirctl " + look[area] + "."
	case connect.CodeUnknown:
		if !connect.IsWireError(err) { // the connection broke under the call
			return exitUnreachable, fmt.Sprintf("The connection to %s broke. If it asks callers for certificates, see --cert "+
				"and --key. %s", api, afterwards)
		}
	case connect.CodeUnimplemented:
		return exitFailure, fmt.Sprintf("Either %s is not the API of a weir-control, or that one is older than this "+
			"weirctl: correct --api, or upgrade it.", api)
	}
	return exitFailure, "The cause is in weir-control's log."
}

// actor is who, as given, or the user of this machine.
func (c *call) actor(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if c.user != "" {
		return c.user, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("who you are is not known here; say it with --actor: %w", err)
	}
	return u.Username, nil
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(c *call) error {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	if c.json {
		return json.NewEncoder(c.stdout).Encode(map[string]string{"version": version})
	}
	_, err := fmt.Fprintln(c.stdout, "weirctl", version)
	return err
}
