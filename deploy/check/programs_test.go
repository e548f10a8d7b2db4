package check

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// checkProgram holds the options that a container or a unit gives a program against those
// that it takes: flags and WEIR_ variables exist and can be read. secrets is where the
// files of /run/secrets are for this test.
func checkProgram(t *testing.T, where, program string, args []string, env map[string]string, secrets string) {
	t.Helper()
	known := options(t, program)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, program), append(slices.Clone(args), "--print-config")...)
	for name, value := range env {
		flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "WEIR_")), "_", "-")
		if !strings.HasPrefix(name, "WEIR_") || !known[flag] {
			t.Errorf("%s: %s does not read %s", where, program, name)
		}
		cmd.Env = append(cmd.Env, name+"="+strings.Replace(value, "/run/secrets", secrets, 1))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %s: %v\n%s", where, program, err, out)
	}
}

// options are those of a program, as it prints them itself.
func options(t *testing.T, program string) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, program), "--print-config").Output()
	if err != nil {
		t.Fatalf("%s --print-config: %v", program, err)
	}
	var printed map[string]any
	if err := yaml.Unmarshal(out, &printed); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"mysql-dsn": true} // weir-control has it as a variable alone
	for name := range printed {
		known[name] = true
	}
	if len(known) < 10 {
		t.Fatalf("%s --print-config shows only %d options", program, len(known))
	}
	return known
}
