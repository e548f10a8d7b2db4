package flags

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestAMisspeltVariableIsAnError(t *testing.T) {
	var program struct {
		Listen   string
		MySQLDSN string `name:"mysql-dsn"`
		Region   string
		Tokens   string `name:"tokens-file"`
	}
	parser, err := kong.New(&program, kong.DefaultEnvars("WEIR"))
	if err != nil {
		t.Fatal(err)
	}
	for name, meant := range map[string]string{
		"WEIR_LISTN": "WEIR_LISTEN", "WEIR_LISTEM": "WEIR_LISTEN", "WEIR_LSITEN": "WEIR_LISTEN", "WEIR_MYSQL_DNS": "WEIR_MYSQL_DSN",
		"WEIR_REGIO": "WEIR_REGION", "WEIR_TOKENS_FILES": "WEIR_TOKENS_FILE", "WEIR_TOKENSFILES": "WEIR_TOKENS_FILE",
	} {
		err := CheckEnvironment(parser.Model, "WEIR_", []string{"WEIR_REGION=eu", name + "=secret"})
		if err == nil || !strings.Contains(err.Error(), name+", did you mean "+meant) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{
		"WEIR_LISTEN", "WEIR_MYSQL_DSN", "WEIR_NODE_PORT", "WEIR_NODE_SERVICE_HOST", "WEIR_PORT_7001_TCP", "WEIR_TOKEN", "WEIR_TOKEN_FILE", "WEIR_API", "WEIR_",
		"LISTN", "HOME", "",
	} {
		if err := CheckEnvironment(parser.Model, "WEIR_", []string{name + "=x"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
