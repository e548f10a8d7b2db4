package flags

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// CheckEnvironment returns an error if a variable of environ, such as os.Environ returns it, has almost the name of a
// variable that the program reads. WEIR_MYSQL_DNS, for example, would otherwise leave a node without MySQL. Almost is a
// difference of one letter, or of two if the name has ten letters or more behind the prefix. Other variables with the
// prefix are left alone, because other programs read them, and Kubernetes sets some for services.
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
			if within(letters, strings.TrimPrefix(candidate, prefix)) {
				return fmt.Errorf("unknown environment variable %s, did you mean %s?", name, candidate)
			}
		}
	}
	return nil
}

// weirctlTokenFile is a variable of weirctl's, one letter from weir-node's WEIR_TOKENS_FILE. A shell may have both.
const weirctlTokenFile = "WEIR_TOKEN_FILE"

// within reports whether two names differ by so little that one is a slip for the other.
func within(a, b string) bool {
	const long = 10
	most := 1
	if len(b) >= long {
		most = 2
	}
	return max(len(a), len(b))-min(len(a), len(b)) <= most && distance(a, b) <= most
}

// distance is the number of letters to insert, to delete, to replace or to swap with their neighbour that make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
