package strict

import "testing"

func TestMisspells(t *testing.T) {
	for _, c := range []struct {
		name, known string
		want        bool
	}{
		{"timeut", "timeout", true}, {"timeotu", "timeout", true}, {"tmeut", "timeout", true}, {"timestamp", "timeout", false},
		{"timeout", "timeout", false}, {"TimeOut", "timeout", true}, {"lco", "loc", true}, {"lax", "loc", false}, {"", "a", true},
		{"wait_timeout", "timeout", false}, {"MYSQL_DNS", "MYSQL_DSN", true},
	} {
		if got := Misspells(c.name, c.known); got != c.want {
			t.Errorf("Misspells(%q, %q) = %v", c.name, c.known, got)
		}
	}
}
