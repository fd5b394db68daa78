"""Networks: features, modules, and cheap SGD steps."""
