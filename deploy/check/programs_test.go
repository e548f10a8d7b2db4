package check

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkProgram compares the options that a container or a unit gives a program with the options that the program
// accepts: flags and WEIR_ variables must exist and be readable. secrets is the folder that this test uses for
// /run/secrets.
func checkProgram(t *testing.T, where, program string, args []string, env map[string]string, secrets string) {
	t.Helper()
	read := variables(t, program)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, program), append(slices.Clone(args), "--print-config")...)
	cmd.Env = []string{} // nil would be this process's own
	for name, value := range env {
		if !read[name] {
			t.Errorf("%s: %s does not read %s", where, program, name)
		}
		cmd.Env = append(cmd.Env, name+"="+strings.Replace(value, "/run/secrets", secrets, 1))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %s: %v\n%s", where, program, err, out)
	}
}

var variable = regexp.MustCompile(`\bWEIR_\w+`)

// variables returns the environment variables that a program reads, by its own help.
func variables(t *testing.T, program string) map[string]bool {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), filepath.Join(bin, program), "--help").Output()
	if err != nil {
		t.Fatalf("%s --help: %v", program, err)
	}
	read := make(map[string]bool)
	for _, name := range variable.FindAllString(string(help), -1) {
		read[name] = true
	}
	return read
}

// A program's help lists the variables that it reads: no rule derives them from its flags' names.
func TestVariablesAreThoseOfTheProgram(t *testing.T) {
	for program, names := range map[string]map[string]bool{
		"weir-node": {"WEIR_REGION": true, "WEIR_V2_WORKSPACE": true, "WEIR_RELAY_PEERS_CA_FILE": true, "WEIR_CONFIG": true,
			"WEIR_region": false, "WEIR_V_2_WORKSPACE": false, "WEIR_PRINT_CONFIG": false, "WEIR_HELP": false, "WEIR_MIGRATE": false},
		"weir-control": {"WEIR_MYSQL_DSN": true, "WEIR_MYSQL_DSN_FILE": true, "WEIR_MIGRATE": true,
			"WEIR_migrate": false, "WEIR_REGION": false, "WEIR_VERSION": false},
	} {
		read := variables(t, program)
		for name, want := range names {
			if read[name] != want {
				t.Errorf("%s reads %s: %v, want %v", program, name, read[name], want)
			}
		}
	}
}
