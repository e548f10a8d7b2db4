package suite

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// FaultVariable names the environment variable with the fault of a child's subject; see FindFaults.
const FaultVariable = "WEIR_STORETEST_FAULT"

// FindFaults expects each fault to be found by the subtest whose name begins as given. It runs that subtest of the test
// of this name in a process of its own, against a subject that has the fault.
func FindFaults(t *testing.T, subject string, faults map[string]string) {
	for fault, subtest := range faults {
		t.Run(subject+"/"+fault, func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0],
				"-rapid.nofailfile", "-test.run=^"+subject+"$/^"+strings.ReplaceAll(subtest, "/", "$/^"))
			// or each takes a second
			child.Env = append(os.Environ(), FaultVariable+"="+fault, "GORACE=atexit_sleep_ms=0")
			out, err := child.CombinedOutput()
			if err == nil {
				t.Fatalf("%q passed", subtest)
			}
			if want := "--- FAIL: " + subject + "/" + subtest; !strings.Contains(string(out), want) {
				t.Errorf("it ended otherwise than by the failure of %q:\n%s", subtest, out)
			}
		})
	}
}
