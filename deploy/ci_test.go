package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// `make test` passes only if every test has passed. A test that fails, is skipped, panics or does not build makes it
// fail, and so does a run without tests. Its last line counts the tests.
func TestWhatMakeTestAccepts(t *testing.T) {
	for name, tc := range map[string]struct {
		source, last string
		accepted     bool
	}{
		"a pass":        {`func TestA(t *testing.T) { t.Run("b", func(t *testing.T) {}) }`, "2 passed, 0 failed, 0 skipped", true},
		"a failure":     {`func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.Error("no") }`, "1 passed, 1 failed, 0 skipped", false},
		"a skip":        {`func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.Skip("later") }`, "1 passed, 0 failed, 1 skipped", false},
		"a panic":       {`func TestA(t *testing.T) {}; func TestB(t *testing.T) { panic("no") }`, "1 passed, 1 failed, 0 skipped", false},
		"an exit":       {`func TestA(t *testing.T) {}; func TestB(t *testing.T) { os.Exit(3) }`, "", false},
		"no build":      {`func TestA(t *testing.T) { no }`, "", false},
		"no test":       {``, "0 passed, 0 failed, 0 skipped", false},
		"only skipping": {`func TestA(t *testing.T) { t.Skip("later") }`, "0 passed, 0 failed, 1 skipped", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":    "module example.com/m\n\ngo 1.26\n",
				"a_test.go": "package m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Exit\nvar _ *testing.T\n\n" + tc.source + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			run := exec.CommandContext(t.Context(), "../.ci/test", "--", "-C", dir, "-count=1", "./...")
			run.Env = append(os.Environ(), "OUT="+filepath.Join(dir, "out"))
			output, err := run.CombinedOutput()
			if (err == nil) != tc.accepted || tc.last != "" && !strings.Contains(string(output), "\n"+tc.last+" in ") {
				t.Errorf("%v, want %q and accepted %v:\n%s", err, tc.last, tc.accepted, output)
			}
		})
	}
}
