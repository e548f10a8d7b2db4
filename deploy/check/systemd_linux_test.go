package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd's own verification accepts the units.
func TestUnitsVerify(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, path := range files(t, "deploy/systemd/*.service") {
		text := string(read(t, path))
		for _, program := range []string{"weir-node", "weir-control", "restate-server"} {
			text = strings.ReplaceAll(text, "/usr/local/bin/"+program, "/bin/sh") // it has to be there
		}
		copied := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, copied)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify", "--man=no"}, paths...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v\n%s", err, out)
	}
}
