package flags

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/shared/strict"
)

// CheckEnvironment returns an error if a variable of environ, such as os.Environ returns it, has almost the name of a
// variable that the program reads. WEIR_MYSQL_DNS, for example, would otherwise leave a node without MySQL. Almost
// means a difference of one letter, or of two letters if the name has ten letters or more behind the prefix. Other
// variables with the prefix are left alone, because other programs read them, and Kubernetes sets some for services.
func CheckEnvironment(model *kong.Application, prefix string, environ []string) error {
	known := make(map[string]bool)
	for _, flag := range model.Flags {
		for _, name := range flag.Envs {
			known[name] = true
		}
	}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		letters, ours := strings.CutPrefix(name, prefix)
		if !ours || known[name] || name == weirctlTokenFile {
			continue
		}
		for candidate := range known {
			if strict.Misspells(letters, strings.TrimPrefix(candidate, prefix)) {
				return fmt.Errorf("unknown environment variable %s, did you mean %s?", name, candidate)
			}
		}
	}
	return nil
}

// weirctlTokenFile is a variable of weirctl's, one letter from weir-node's WEIR_TOKENS_FILE. A shell may have both.
const weirctlTokenFile = "WEIR_TOKEN_FILE"
