package main

import (
	"errors"
	"fmt"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/files"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/shared/settings/document"
)

type exportAll struct {
	File string `short:"f" placeholder:"FILE" help:"Write to this file instead of stdout."`
}

func (e exportAll) Run(c *call) error {
	stored, err := c.stored()
	if err != nil {
		return err
	}
	d, err := stored.Document()
	if err != nil {
		return &hinted{err, exitFailure, "Upgrade weirctl to the version of weir-control."}
	}
	form := document.YAML
	if c.form == formJSON {
		form = document.JSON
	}
	text, err := form(d)
	if err != nil {
		return &hinted{err, exitFailure,
			"Correct the stored settings with weirctl override or weirctl namespace, or delete some of it."}
	}
	if e.File == "" {
		_, err = c.stdout.Write(text)
		return err
	}
	if err := files.Replace(e.File, text, 0o644); err != nil {
		return &hinted{err, exitFailure, "Name a file that can be written with -f."}
	}
	namespaces, overrides := int64(len(d.Namespaces)), int64(len(d.Overrides))
	_, _ = fmt.Fprintf(c.stderr, "%s: %s, %s\n", e.File, format.Plural(namespaces, "namespace"), format.Plural(overrides,
		"override"))
	return nil
}

// stored reads all settings of the fleet.
func (c *call) stored() (plan.Stored, error) {
	all, err := c.planned().Stored(c.ctx)
	if unlisted := (*plan.NotListedError)(nil); errors.As(err, &unlisted) {
		err = &hinted{err, exitFailure, "See weirctl namespace list and weirctl override list."}
	}
	return all, err
}

// planned returns the part of the API that a plan reads and changes.
func (c *call) planned() plan.Fleet {
	return plan.Fleet{Clients: c.Clients, Warnings: c.stderr}
}
