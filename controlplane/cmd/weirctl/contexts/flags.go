package contexts

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirhq/weir/shared/strict"
)

// defaultAPI is the API that is called without a flag, a variable or a context.
const defaultAPI = "http://127.0.0.1:7080"

// Flags select a fleet's API and the caller's identity.
type Flags struct {
	API       string `name:"api" env:"WEIR_API" placeholder:"URL" help:"The API of weir-control. Default: the context's, or http://127.0.0.1:7080."`
	CA        string `name:"ca" env:"WEIR_CA" placeholder:"FILE" help:"PEM file with the CAs of the API's certificate. Default: those of this machine."`
	Cert      string `env:"WEIR_CERT" placeholder:"FILE" help:"PEM file with the client certificate for the API."`
	Key       string `env:"WEIR_KEY" placeholder:"FILE" help:"PEM file with the key of --cert."`
	TokenFile string `env:"WEIR_TOKEN_FILE" placeholder:"FILE" help:"File with the token to call with. Default: the context's, or the environment variable WEIR_TOKEN."`

	Context  string `env:"WEIR_CONTEXT" placeholder:"NAME" help:"Name of a context: a fleet's API and token, stored with context set. Default: the current one, unless --api is given."`
	Contexts string `env:"WEIR_CONTEXTS" placeholder:"FILE" help:"The file of contexts. Default: weir/contexts.yaml in the user's configuration directory."`

	tokenEnv string // name of a variable
}

// Resolve sets unset flags from the context. With only --api there is no context, so that a fleet's token is not sent
// to another fleet.
func (f *Flags) Resolve() error {
	if f.API == "" || f.Context != "" {
		all, err := Read(f.Contexts)
		if err != nil {
			return err
		}
		f.Context = cmp.Or(f.Context, all.Current)
		if f.Context != "" {
			from, err := all.Named(f.Context)
			if err != nil {
				return err
			}
			f.inherit(*from)
		}
	}
	f.API = cmp.Or(f.API, defaultAPI)
	return checkAPI(f.API)
}

// inherit sets unset flags from a context. A certificate and its key stay together.
func (f *Flags) inherit(from Context) {
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

// Absolute makes file names independent of the working directory.
func (f Flags) Absolute() (Flags, error) {
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

// Secret returns the token, if any. There is no flag for a token, because every user can list the flags of processes.
func (f *Flags) Secret() (string, error) {
	if f.TokenFile == "" {
		if f.tokenEnv != "" && os.Getenv(f.tokenEnv) == "" {
			return "", fmt.Errorf("context %s: the environment has no %s, which holds its token", f.Context, f.tokenEnv)
		}
		return strings.TrimSpace(os.Getenv(cmp.Or(f.tokenEnv, "WEIR_TOKEN"))), nil
	}
	text, err := strict.Line("--token-file", f.TokenFile)
	return strings.TrimSpace(text), err
}

// Name returns the fleet's name for questions.
func (f *Flags) Name() string {
	if f.Context == "" {
		return f.API
	}
	return f.Context + ", " + f.API
}
