package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// packageLinesMax bounds the lines of a package, without its tests. A package that outgrows it has several ideas.
const packageLinesMax = 5000

// longer are packages that are being split, with bounds of their own.
var longer = map[string]int{
	module + "controlplane/rollout": 6000,
}

// Each package of both planes and of restate is short enough to be read. Generated code does not count.
func TestPackagesAreShort(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles", module+"dataplane/...", module+"controlplane/...",
		module+"restate/...", module+"deploy/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; packages++ {
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(text, []byte("\n"))
		}
		most := packageLinesMax
		if own, ok := longer[p.ImportPath]; ok {
			most = own
		}
		if lines > most {
			t.Errorf("%s has %d lines without tests (at most %d): split it by its ideas", p.ImportPath, lines, most)
		}
	}
	if packages < 50 {
		t.Errorf("only %d packages", packages)
	}
}
