package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

const (
	// roleEnv names a role and specEnv has its specification in JSON. If they are set, the test's program runs in that
	// role.
	roleEnv, specEnv = "WEIR_FAULTS_ROLE", "WEIR_FAULTS_SPEC"

	nodeRole, holdersRole, clientRole = "node", "holders", "client"

	// raceEnds has a process end where the race detector finds something: its parent notices that.
	raceEnds = "GORACE=halt_on_error=1"
)

// role is the work of a child process, with its specification as fields.
type role interface{ main() error }

// play runs the program in a role, and returns its exit code.
func play(name string) int {
	r := map[string]role{nodeRole: new(process), holdersRole: new(holders), clientRole: new(streamsClient)}[name]
	err := json.Unmarshal([]byte(os.Getenv(specEnv)), r)
	if err == nil {
		err = r.main()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startChild starts the program in a role. Its standard input ends with this process, and so does the child. The caller
// must wait for it.
func startChild(t *testing.T, name string, r role) (cmd *exec.Cmd, out io.Reader) {
	t.Helper()
	spec, err := json.Marshal(r)
	must(t, err)
	program, err := os.Executable()
	must(t, err)
	cmd = exec.Command(program)
	cmd.Env = append(os.Environ(), roleEnv+"="+name, specEnv+"="+string(spec), raceEnds)
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe()
	must(t, err)
	out, err = cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return cmd, out
}
