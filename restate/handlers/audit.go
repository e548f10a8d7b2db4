package handlers

import (
	"context"
	"errors"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
)

// AuditService is the service's name in Restate.
const AuditService = "WeirAudit"

const auditTimeout = 10 * time.Second

// auditTrail is the service WeirAudit: it writes the changes of operators into the audit table. The handler of a change
// sends the entry to it and stores its own state in the same invocation. So both happen or neither, and a change need
// not wait for MySQL.
type auditTrail struct {
	store audit.Store
	steps *stepper
}

func (a *auditTrail) definition() restate.ServiceDefinition {
	return restate.NewService(AuditService,
		restate.WithDocumentation("Writes the audit log. Only Weir's other handlers call it."),
		restate.WithIngressPrivate(true),
		restate.WithJournalRetention(24*time.Hour),
		restate.WithIdempotencyRetention(orderRetention),
		// It retries for hours and is then paused, because an entry must not be lost, so an operator must look.
		retries(30*time.Second, 500, restate.PauseOnMaxAttempts())).
		Handler("Write", restate.NewServiceHandler(a.write))
}

func (a *auditTrail) write(ctx restate.Context, e audit.Entry) (restate.Void, error) {
	e.ID = ctx.Request().ID // the same at every attempt
	err := restate.RunVoid(ctx, func(rc restate.RunContext) error {
		if a.steps.draining.Load() {
			return errDraining
		}
		timed, cancel := context.WithTimeout(rc, auditTimeout)
		defer cancel()
		err := audit.Write(timed, a.store, e)
		if errors.Is(err, controlplane.ErrInvalid) {
			return invalid(err) // retries would not help
		}
		return err
	}, restate.WithName("insert"))
	if err != nil {
		return restate.Void{}, err
	}
	return restate.Void{}, nil
}

// sendAudit sends an audit entry about the object of ctx. kind is the kind of object, such as "table". action is the
// change, such as "rollout.start".
func sendAudit(ctx restate.ObjectContext, kind string, by controlplane.By, action string, before, after any) error {
	e := audit.Entry{By: by, Action: action, Subject: kind + " " + restate.Key(ctx)}
	var err error
	if e.Before, err = text(before); err != nil {
		return err
	}
	if e.After, err = text(after); err != nil {
		return err
	}
	restate.ServiceSend(ctx, AuditService, "Write").Send(e)
	return nil
}

// auditJob sends an entry about the job of ctx.
func auditJob(ctx restate.ObjectContext, by controlplane.By, action string, before, after any) error {
	return sendAudit(ctx, "job", by, restate.Key(ctx)+"."+action, before, after)
}
