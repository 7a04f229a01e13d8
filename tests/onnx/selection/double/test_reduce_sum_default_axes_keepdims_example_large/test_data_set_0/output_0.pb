BreducedJ[
G¦yÙi