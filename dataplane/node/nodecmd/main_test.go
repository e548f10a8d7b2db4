package nodecmd

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain frees the tests from the environment they run in.
func TestMain(m *testing.M) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "WEIR_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m,
		// go-redis looks once a second whether a server that refused it is back, and
		// sees only then that its pool was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
