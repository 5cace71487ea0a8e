// aici: what scripts see
