package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// resetLook is the time between two reads of the fleet until all nodes have a reset.
const resetLook = time.Second

type resetSet struct {
	space
	Identifier      string        `arg:"" help:"The identifier; not a pattern."`
	LongestDuration time.Duration `placeholder:"DURATION" help:"The longest window that limits it (1s to 8784h): the reset is remembered for that long. Default: any."`
	Watch           bool          `help:"Wait until every live node has it, for at most --timeout."`
	by
}

func (r resetSet) Run(c *call) error {
	if r.Watch {
		if err := c.mayWatchReset(); err != nil {
			return err
		}
	}
	answer, err := apiclient.Ask(c.ctx, c.Settings.ResetKey, &controlv1.ResetKeyRequest{
		Actor: r.Actor, Reason: r.Reason, Workspace: r.Workspace, Namespace: r.Namespace, Identifier: r.Identifier,
		LongestWindowMs: r.LongestDuration.Milliseconds(),
	})
	if err != nil {
		return err
	}
	err = c.print(answer, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "reset, generation %d; %s\n", answer.GetReset_().GetGeneration(), travels)
	})
	if err != nil || !r.Watch {
		return err
	}
	return c.watchReset(answer.GetReset_())
}

// mayWatchReset returns an error if --watch is used with a token that must not see the fleet. It runs before the reset.
// Otherwise the command would reset the key and then exit as if the reset had been rejected.
func (c *call) mayWatchReset() error {
	_, err := apiclient.Ask(c.ctx, c.Control.Fleet, &controlv1.FleetRequest{})
	if connect.CodeOf(err) != connect.CodePermissionDenied || !connect.IsWireError(err) {
		return nil
	}
	return &hinted{errors.New("nothing was reset: --watch shows the nodes of the fleet, and this token is limited " +
		"to some workspaces"), exitFailure, "Reset the key without --watch; nodes have the reset within two " +
		"settings_interval_ms."}
}

// watchReset prints the number of nodes that have a reset, until all live nodes have it. A node reports the reset in
// its heartbeats. Builds without resets never report it.
func (c *call) watchReset(reset *controlv1.Reset) error {
	said, missing := "", []string(nil)
	for {
		fleet, err := apiclient.Ask(c.ctx, c.Control.Fleet, &controlv1.FleetRequest{})
		if c.ctx.Err() != nil {
			return notHeardOf(missing)
		}
		if err != nil {
			return err
		}
		have := 0
		have, missing = resetProgress(fleet.GetNodes(), reset.GetSetAtMs())
		text := fmt.Sprintf("%d of %s that are live have it", have, format.Plural(int64(have+len(missing)), "node"))
		if text != said && !c.form.documents() {
			_, _ = fmt.Fprintln(c.stdout, text)
			said = text
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-c.ctx.Done():
			return notHeardOf(missing)
		case <-time.After(resetLook):
		}
	}
}

func notHeardOf(missing []string) error {
	return &hinted{errors.New("the reset is stored, but not reported yet by " + strings.Join(missing, ", ")), exitFailure,
		"Relays and nodes read settings every settings_interval_ms: see weirctl fleet."}
}

// resetProgress returns the number of live nodes that have a reset of that time, and the nodes that lack it.
func resetProgress(nodes []*controlv1.Node, setAtMs int64) (have int, missing []string) {
	for _, n := range nodes {
		switch {
		case !n.GetLive():
		case n.GetHealth().GetResetAtMs() >= setAtMs:
			have++
		default:
			missing = append(missing, n.GetNodeId())
		}
	}
	return have, missing
}

type resetList struct{ space }

func (r resetList) Run(c *call) error {
	ask := &controlv1.ListResetsRequest{Workspace: r.Workspace, Namespace: r.Namespace}
	return show(c, c.Settings.ListResets, ask, func(w io.Writer, answer *controlv1.ListResetsResponse) {
		format.List(w, "nothing has been reset in this namespace",
			[]string{"IDENTIFIER", "GENERATION", "SET", "FORGOTTEN"}, answer.GetResets(),
			func(t format.Table, r *controlv1.Reset) {
				t.Row(r.GetIdentifier(), format.Digits(r.GetGeneration()), format.Moment(r.GetSetAtMs()),
					format.Moment(r.GetExpiresAtMs()))
			})
	})
}
