package main

import (
	"context"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
)

// sight is the result of one look at a rollout or a retirement.
type sight struct {
	standing string        // its state, in one line
	answer   proto.Message // the same, for programs
	over     bool          // it has ended
	outcome  error         // error with which the command ends then
}

// watch prints each new state that look returns, until the work has ended. A look that gets no response is repeated,
// unless it is the first. An interrupt ends only the watching; watch then prints status, the command that shows the
// state again.
func (c *call) watch(every time.Duration, status string, look func(context.Context) (sight, error)) error {
	last, troubled := "", 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		s, err := c.sees(look)
		switch {
		case err == nil:
			troubled = 0
		case connect.CodeOf(err) == connect.CodeUnavailable && troubled < troubledMax && last != "":
			troubled++
		default:
			return err
		}
		if err == nil && s.standing != last {
			last = s.standing
			err := c.print(s.answer, func(w io.Writer) {
				format.Prose(w, format.Moment(c.now().UnixMilli())+"  ", s.standing)
			})
			if err != nil {
				return err
			}
		}
		if err == nil && s.over {
			return s.outcome
		}
		select {
		case <-tick.C:
		case <-c.patient.Done():
			return &hinted{c.patient.Err(), exitFailure, "It continues: see weirctl " + status + "."}
		}
	}
}

// sees makes one look with its own timeout.
func (c *call) sees(look func(context.Context) (sight, error)) (sight, error) {
	ctx, cancel := context.WithTimeout(c.patient, callTimeout)
	defer cancel()
	return look(ctx)
}

// words formats the name of a phase.
func words(phase string) string { return strings.ReplaceAll(phase, "_", " ") }

// because formats a phase with its reason. A reason such as "aborted by ann: a try" already contains the phase.
func because(phase, why string) string {
	phase = words(phase)
	switch {
	case why == "":
		return phase
	case strings.HasPrefix(why, phase+" "):
		return why
	}
	return phase + ": " + why
}
