package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/shared/strict"
)

// defaultAPI is called where neither a flag, the environment nor a context says otherwise.
const defaultAPI = "http://127.0.0.1:7080"

// fleetFlags say which fleet's API is called, and as whom.
type fleetFlags struct {
	API       string `name:"api" env:"WEIR_API" placeholder:"URL" help:"The API of weir-control. Default: the context's, or http://127.0.0.1:7080."`
	CA        string `name:"ca" env:"WEIR_CA" placeholder:"FILE" help:"PEM file with the CAs of the API's certificate. Default: those of this machine."`
	Cert      string `env:"WEIR_CERT" placeholder:"FILE" help:"PEM file with the client certificate for the API."`
	Key       string `env:"WEIR_KEY" placeholder:"FILE" help:"PEM file with the key of --cert."`
	TokenFile string `env:"WEIR_TOKEN_FILE" placeholder:"FILE" help:"File with the token to call with. Default: the context's, or the environment variable WEIR_TOKEN."`

	Context  string `env:"WEIR_CONTEXT" placeholder:"NAME" help:"Name of a context: a fleet's API and token, stored with context set. Default: the current one, unless --api is given."`
	Contexts string `env:"WEIR_CONTEXTS" placeholder:"FILE" help:"The file of contexts. Default: weir/contexts.yaml in the user's configuration directory."`

	tokenEnv string // name of a variable
}

// resolve fills in from the context what flags leave out. With --api alone there is no context, so that the token of
// one fleet is not sent to another.
func (f *fleetFlags) resolve() error {
	if f.API == "" || f.Context != "" {
		all, err := readContexts(f.Contexts)
		if err != nil {
			return err
		}
		f.Context = cmp.Or(f.Context, all.Current)
		if f.Context != "" {
			from, err := all.named(f.Context)
			if err != nil {
				return err
			}
			f.inherit(*from)
		}
	}
	f.API = cmp.Or(f.API, defaultAPI)
	return checkAPI(f.API)
}

// inherit fills in what flags leave out. A certificate and its key stay together.
func (f *fleetFlags) inherit(from fleetContext) {
	f.API, f.CA = cmp.Or(f.API, from.API), cmp.Or(f.CA, from.CA)
	if f.Cert == "" && f.Key == "" {
		f.Cert, f.Key = from.Cert, from.Key
	}
	if f.TokenFile == "" {
		f.TokenFile, f.tokenEnv = from.TokenFile, from.TokenEnv
	}
}

func checkAPI(api string) error {
	if !strings.HasPrefix(api, "http://") && !strings.HasPrefix(api, "https://") {
		return fmt.Errorf("--api is %s, want http://host:port or https://host:port", api)
	}
	return strict.URL("--api", api)
}

type contextList struct{}

// Run lists contexts.
func (contextList) Run(c *call) error {
	all, err := readContexts(c.fleet.Contexts)
	if err != nil {
		return wrongContext(err)
	}
	if c.form.documents() {
		return c.document(all)
	}
	writeContexts(c.stdout, all)
	return nil
}

func writeContexts(w io.Writer, all *contexts) {
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
		t.Row(current, f.Name, f.API, token, orNone(f.Cert))
	}
	t.Flush()
}

type contextUse struct {
	Name string `arg:"" help:"The context."`
}

// Run makes a context the current one.
func (u contextUse) Run(c *call) error {
	return c.editContexts("current: "+u.Name, func(all *contexts) error {
		_, err := all.named(u.Name)
		all.Current = u.Name
		return err
	})
}

type contextSet struct {
	Name     string `arg:"" help:"The context to make or change."`
	TokenEnv string `placeholder:"NAME" help:"Environment variable that holds its token, in place of --token-file."`
}

// Run keeps the flags that say which API is called, and how. Those that are left out stay as they are.
func (s contextSet) Run(c *call) error {
	return c.editContexts("set: "+s.Name, func(all *contexts) error {
		f := fleetContext{Name: s.Name}
		if was, err := all.named(s.Name); err == nil {
			f = *was
		}
		given, err := c.fleet.absolute()
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
		all.put(f)
		if len(all.Contexts) == 1 {
			all.Current = f.Name
		}
		return nil
	})
}

// absolute makes file names independent of the working directory.
func (f fleetFlags) absolute() (fleetFlags, error) {
	for _, file := range []*string{&f.CA, &f.Cert, &f.Key, &f.TokenFile} {
		if *file == "" {
			continue
		}
		whole, err := filepath.Abs(*file)
		if err != nil {
			return f, err
		}
		*file = whole
	}
	return f, nil
}

type contextDelete struct {
	Name string `arg:"" help:"The context to delete. The fleet and its token stay as they are."`
}

// Run forgets a context.
func (d contextDelete) Run(c *call) error {
	return c.editContexts("deleted: "+d.Name, func(all *contexts) error {
		if _, err := all.named(d.Name); err != nil {
			return err
		}
		all.remove(d.Name)
		if all.Current == d.Name {
			all.Current = ""
		}
		return nil
	})
}

// editContexts changes the file of contexts, unless with --dry-run, and shows its new content.
func (c *call) editContexts(did string, edit func(*contexts) error) error {
	all, err := readContexts(c.fleet.Contexts)
	if err == nil {
		err = edit(all)
	}
	if err == nil && !c.dryRun {
		err = all.write()
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

// wrongContext is an error of a flag or the file.
func wrongContext(err error) error {
	if known := (*hinted)(nil); errors.As(err, &known) {
		return err
	}
	return &hinted{err, exitUsage, "Correct it and try again; see weirctl context --help."}
}

// secret is the token to call with, if any. It is no flag, because every user can list the flags of processes.
func (f *fleetFlags) secret() (string, error) {
	if f.TokenFile == "" {
		if f.tokenEnv != "" && os.Getenv(f.tokenEnv) == "" {
			return "", fmt.Errorf("context %s: the environment has no %s, which holds its token", f.Context, f.tokenEnv)
		}
		return strings.TrimSpace(os.Getenv(cmp.Or(f.tokenEnv, "WEIR_TOKEN"))), nil
	}
	text, err := strict.Line("--token-file", f.TokenFile)
	return strings.TrimSpace(text), err
}
