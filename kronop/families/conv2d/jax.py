conv2d = None
