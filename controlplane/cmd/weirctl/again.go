package main

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
)

// troubledMax is the number of consecutive looks that can fail while a command watches.
const troubledMax = 10

// again holds the flags of a command that looks once, or repeatedly until it is interrupted.
type again struct {
	Watch bool          `help:"Repeat until interrupted."`
	Every time.Duration `default:"5s" help:"Time between two updates of --watch."`
}

// look calls show once, or with --watch repeatedly. A look that gets no response is repeated, except the first look,
// because then the call itself is wrong. After an interrupt the command ends with the result of the last look.
func (a again) look(c *call, show func(*call) error) error {
	if !a.Watch {
		return show(c)
	}
	tick := time.NewTicker(max(a.Every, 10*time.Millisecond))
	defer tick.Stop()
	var last error // the result of the last look that got a response
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

// once makes one look with its own timeout.
func (a again) once(c *call, show func(*call) error) error {
	ctx, cancel := context.WithTimeout(c.patient, callTimeout)
	defer cancel()
	one := *c
	one.ctx = ctx
	return show(&one)
}
