package rollout

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// Every field of the guardrails, with its default, is in the operators' page.
func TestThePageHasEveryGuardrailWithItsDefault(t *testing.T) {
	page, err := os.ReadFile("../../restate/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := func(of any, prefix string) {
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		for field, value := range fields {
			if field == "comparison" {
				continue
			}
			if ceiling, is := value.(map[string]any); is {
				value = fmt.Sprintf("`factor` %v, `least` %v", ceiling["factor"], ceiling["least"])
			}
			if row := fmt.Sprintf("| `%s%s` | %v |", prefix, field, value); !strings.Contains(string(page), row) {
				t.Errorf("restate/OPERATING.md has no row that begins with %s", row)
			}
		}
	}
	g := plan.DefaultGuardrails()
	rows(g, "")
	rows(g.Comparison, "comparison.")
	rows(plan.DefaultLimitsGuardrails(), "")
}
