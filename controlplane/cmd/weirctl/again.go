package main

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
)

// troubledMax is how many looks in a row may go unanswered, while watching.
const troubledMax = 10

// again says whether a command looks once or until it is interrupted.
type again struct {
	Watch bool          `help:"Repeat until interrupted."`
	Every time.Duration `default:"5s" help:"Time between two updates of --watch."`
}

// look shows once, or with --watch repeatedly. If a look gets no answer it is repeated, unless it is the first one:
// then the call itself is wrong. After an interrupt the command ends as the last look did.
func (a again) look(c *call, show func(*call) error) error {
	if !a.Watch {
		return show(c)
	}
	tick := time.NewTicker(max(a.Every, 10*time.Millisecond))
	defer tick.Stop()
	var last error // what the last look that was answered found
	for looks, troubled := 0, 0; ; looks++ {
		if looks > 0 && !c.form.documents() {
			_, _ = fmt.Fprintf(c.stdout, "\n%s\n", format.Moment(c.now().UnixMilli()))
		}
		err := a.once(c, show)
		if err == nil || verdict(err) {
			last = err
		}
		switch {
		case c.patient.Err() != nil:
			return last
		case connect.CodeOf(err) == connect.CodeUnavailable && troubled < troubledMax && looks > 0:
			troubled++
			c.fail(err, exitUnreachable, "")
		case err != nil && !verdict(err):
			return err
		default:
			troubled = 0
		}
		select {
		case <-tick.C:
		case <-c.patient.Done():
			return last
		}
	}
}

// once is one look, with a time limit of its own.
func (a again) once(c *call, show func(*call) error) error {
	ctx, cancel := context.WithTimeout(c.patient, callTimeout)
	defer cancel()
	one := *c
	one.ctx = ctx
	return show(&one)
}
