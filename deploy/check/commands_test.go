package check

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Runbooks, which people use at night, only have commands that weirctl has.
func TestRunbookCommandsExist(t *testing.T) {
	command := regexp.MustCompile(`weirctl((?: [a-z]+)+)`)
	tried := make(map[string]bool)
	for _, path := range files(t, "deploy/prometheus/runbooks/*.md") {
		for _, found := range command.FindAllStringSubmatch(string(read(t, path)), -1) {
			words := strings.Fields(found[1])
			if tried[found[1]] {
				continue
			}
			tried[found[1]] = true
			if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "weirctl"), append(words, "--help")...).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "Usage: weirctl "+found[1][1:]) {
				t.Errorf("%s: weirctl%s: %v\n%s", path, found[1], err, out)
			}
		}
	}
	if len(tried) < 4 {
		t.Errorf("only %d commands", len(tried))
	}
}
