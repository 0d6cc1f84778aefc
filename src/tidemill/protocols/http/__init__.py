"""What all protocols share: routing, reading requests, running handlers, and rendering errors."""
