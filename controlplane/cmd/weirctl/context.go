package main

import (
	"cmp"
	"errors"
	"io"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/contexts"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
)

type contextList struct{}

func (contextList) Run(c *call) error {
	all, err := contexts.Read(c.fleet.Contexts)
	if err != nil {
		return wrongContext(err)
	}
	if c.form.documents() {
		return c.document(all)
	}
	writeContexts(c.stdout, all)
	return nil
}

func writeContexts(w io.Writer, all *contexts.File) {
	if len(all.Contexts) == 0 {
		format.Head(w, "there is no context yet: see weirctl context set --help")
		return
	}
	t := format.NewTable(w)
	t.Row("CURRENT", "NAME", "API", "TOKEN", "CERTIFICATE")
	for _, f := range all.Contexts {
		current, token := "", "-"
		switch {
		case f.TokenFile != "":
			token = "file " + f.TokenFile
		case f.TokenEnv != "":
			token = "variable " + f.TokenEnv
		}
		if f.Name == all.Current {
			current = "*"
		}
		t.Row(current, f.Name, f.API, token, format.OrNone(f.Cert))
	}
	t.Flush()
}

type contextUse struct {
	Name string `arg:"" help:"The context."`
}

func (u contextUse) Run(c *call) error {
	return c.editContexts("current: "+u.Name, func(all *contexts.File) error {
		_, err := all.Named(u.Name)
		all.Current = u.Name
		return err
	})
}

type contextSet struct {
	Name     string `arg:"" help:"The context to make or change."`
	TokenEnv string `placeholder:"NAME" help:"Environment variable that holds its token, in place of --token-file."`
}

// Run stores the flags that select an API. A flag that is not set keeps its stored value.
func (s contextSet) Run(c *call) error {
	return c.editContexts("set: "+s.Name, func(all *contexts.File) error {
		f := contexts.Context{Name: s.Name}
		if was, err := all.Named(s.Name); err == nil {
			f = *was
		}
		given, err := c.fleet.Absolute()
		if err != nil {
			return err
		}
		f.API, f.CA = cmp.Or(given.API, f.API), cmp.Or(given.CA, f.CA)
		f.Cert, f.Key = cmp.Or(given.Cert, f.Cert), cmp.Or(given.Key, f.Key)
		switch {
		case given.TokenFile != "" && s.TokenEnv != "":
			return errors.New("--token-file and --token-env: set only one")
		case given.TokenFile != "" || s.TokenEnv != "":
			f.TokenFile, f.TokenEnv = given.TokenFile, s.TokenEnv
		}
		if f.API == "" {
			return errors.New("--api is missing: a context needs one")
		}
		all.Put(f)
		if len(all.Contexts) == 1 {
			all.Current = f.Name
		}
		return nil
	})
}

type contextDelete struct {
	Name string `arg:"" help:"The context to delete. The fleet and its token stay as they are."`
}

func (d contextDelete) Run(c *call) error {
	return c.editContexts("deleted: "+d.Name, func(all *contexts.File) error {
		if _, err := all.Named(d.Name); err != nil {
			return err
		}
		all.Remove(d.Name)
		if all.Current == d.Name {
			all.Current = ""
		}
		return nil
	})
}

// editContexts changes the file of contexts, unless --dry-run is set, and prints its new content.
func (c *call) editContexts(did string, edit func(*contexts.File) error) error {
	all, err := contexts.Read(c.fleet.Contexts)
	if err == nil {
		err = edit(all)
	}
	if err == nil && !c.dryRun {
		err = all.Write()
	}
	if err != nil {
		return wrongContext(err)
	}
	if c.form.documents() {
		return c.document(all)
	}
	writeContexts(c.stdout, all)
	if c.dryRun {
		did = "--dry-run changes nothing"
	}
	format.Head(c.stdout, "%s", did)
	return nil
}

// wrongContext returns an error about a flag or the file.
func wrongContext(err error) error {
	if missing := (*contexts.MissingError)(nil); errors.As(err, &missing) {
		return &hinted{err, exitUsage, "See weirctl context list; weirctl context set makes one."}
	}
	return &hinted{err, exitUsage, "Correct it and try again; see weirctl context --help."}
}
