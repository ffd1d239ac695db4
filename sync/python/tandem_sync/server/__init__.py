"""What Tandem's plug-ins for inference servers share: memory that versions are staged in, and the receiver over it."""
