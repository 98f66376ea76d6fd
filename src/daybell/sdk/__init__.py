"""What people write: App, task, Context. Reading order: app, task, context, handle."""
