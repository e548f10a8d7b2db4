package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// sight is what one look at something durable has found.
type sight struct {
	standing string        // where it stands, in a line
	answer   proto.Message // the same, for programs
	over     bool          // it moves no more
	outcome  error         // what the command ends with then
}

// watch shows what look finds whenever it has moved, until it is over. What does not
// answer for a while is looked for again, unless it is the first look: it goes on without
// us. An interrupt says so; status is the command that finds it again.
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
				_, _ = fmt.Fprintf(w, "%s  %s\n", moment(c.now().UnixMilli()), plain(s.standing))
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
			return &told{c.patient.Err(), exitFailure, "It goes on: see weirctl " + status + "."}
		}
	}
}

// sees is one look, with a time limit of its own.
func (c *call) sees(look func(context.Context) (sight, error)) (sight, error) {
	ctx, cancel := context.WithTimeout(c.patient, callTimeout)
	defer cancel()
	return look(ctx)
}

// words are a phase's, as people say it.
func words(phase string) string { return strings.ReplaceAll(phase, "_", " ") }

// because is a phase and why it came to it: "aborted by ann: a try" says both.
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
